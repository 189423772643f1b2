//! Reads a text/event-stream as it arrives, with no more work per frame than a run with hundreds of streams can afford.

use super::LoadError;

/// Longest line that is kept, in bytes; a message of 4,000 characters is far below it.
const LINE_BYTES_MAX: usize = 1 << 20;

/// One block of a stream: what stands between two blank lines. Blocks that hold only a place (`id:`) are given too.
#[derive(Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The place after this block, when the block names one.
    pub id: Option<&'a str>,
    /// The type; empty when the block names none.
    pub event: &'a str,
    /// The data lines, joined by `\n`.
    pub data: &'a str,
    /// Milliseconds that the server asks to wait before a reconnect.
    pub retry_ms: Option<u64>,
}

/// The state between two chunks of bytes. Its buffers are used again for every frame.
#[derive(Debug, Default)]
pub struct FrameReader {
    line: Vec<u8>,
    after_cr: bool,
    id: Option<String>,
    event: String,
    data: String,
    has_data: bool,
    retry_ms: Option<u64>,
    comments: u64,
}

impl FrameReader {
    /// Takes the next bytes and calls `on_frame` for each block that they complete. A block that is never completed
    /// was never received: its id must not move the reader's place.
    ///
    /// # Errors
    /// When a line is longer than 1 MiB or is not UTF-8.
    pub fn feed(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(Frame<'_>)) -> Result<(), LoadError> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            if self.line.is_empty() {
                self.take_line(&bytes[..end], &mut on_frame)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(&bytes[..end]);
                self.take_line(&line, &mut on_frame)?;
                line.clear();
                self.line = line;
            }
            let was_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if was_cr {
                // The LF of a CRLF may come with the next chunk.
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        if self.line.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(LoadError::Stream("a line of the stream is longer than 1 MiB".into()));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Comment lines seen so far: the heartbeats.
    #[must_use]
    pub fn comments(&self) -> u64 {
        self.comments
    }

    fn take_line(&mut self, line: &[u8], on_frame: &mut impl FnMut(Frame<'_>)) -> Result<(), LoadError> {
        if line.is_empty() {
            self.end_block(on_frame);
            return Ok(());
        }
        if line[0] == b':' {
            self.comments += 1;
            return Ok(());
        }
        let line = std::str::from_utf8(line).map_err(|_| LoadError::Stream("a line of the stream is not UTF-8".into()))?;
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.data.push_str(value);
                self.has_data = true;
            }
            "event" => {
                self.event.clear();
                self.event.push_str(value);
            }
            "id" if !value.contains('\0') => match &mut self.id {
                Some(id) => {
                    id.clear();
                    id.push_str(value);
                }
                None => self.id = Some(value.to_owned()),
            },
            "retry" => self.retry_ms = value.parse().ok(),
            _ => {}
        }
        Ok(())
    }

    fn end_block(&mut self, on_frame: &mut impl FnMut(Frame<'_>)) {
        let something = self.id.is_some() || self.has_data || self.retry_ms.is_some() || !self.event.is_empty();
        if something {
            on_frame(Frame { id: self.id.as_deref(), event: &self.event, data: &self.data, retry_ms: self.retry_ms });
        }
        self.id = None;
        self.event.clear();
        self.data.clear();
        self.has_data = false;
        self.retry_ms = None;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Feeds `text` in chunks of `step` bytes and writes each frame as `id|event|data|retry`.
    fn frames(text: &str, step: usize) -> Vec<String> {
        let mut reader = FrameReader::default();
        let mut seen = Vec::new();
        for chunk in text.as_bytes().chunks(step) {
            reader
                .feed(chunk, |f| {
                    let retry = f.retry_ms.map(|ms| ms.to_string()).unwrap_or_default();
                    seen.push(format!("{}|{}|{}|{retry}", f.id.unwrap_or("-"), f.event, f.data));
                })
                .unwrap();
        }
        seen
    }

    fn check(text: &str, expected: &[&str]) {
        for step in 1..=text.len() {
            assert_eq!(frames(text, step), expected, "in chunks of {step} bytes");
        }
    }

    #[test]
    fn a_stream_is_read_the_same_however_it_is_cut() {
        check(
            "retry: 1500\nid: e.1-0\n\nevent: hello\ndata: {\"device\":null}\n\n: beat\n\nid: e.2-0\nevent: message.created\ndata: {\"é\":1}\n\n",
            &["e.1-0|||1500", "-|hello|{\"device\":null}|", "e.2-0|message.created|{\"é\":1}|"],
        );
    }

    #[test]
    fn every_line_ending_of_the_standard_is_understood() {
        check("id: 1\r\ndata: a\r\n\r\ndata: b\r\rdata:c\n\n", &["1||a|", "-||b|", "-||c|"]);
    }

    #[test]
    fn data_lines_are_joined_and_unknown_fields_passed_over() {
        check("data: a\ndata:\ndata: b\nfoo: x\n\n", &["-||a\n\nb|"]);
    }

    #[test]
    fn a_block_that_was_cut_off_is_no_frame() {
        check("id: 1\ndata: whole\n\nid: 2\ndata: cut off", &["1||whole|"]);
        check("id: 1\ndata: whole\n\nid: 2\ndata: cut off\n", &["1||whole|"]);
    }

    #[test]
    fn a_place_alone_is_a_frame_and_a_comment_is_not() {
        check(": beat\n\nid: e.9-0\n\n", &["e.9-0|||"]);
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut reader = FrameReader::default();
        let chunk = vec![b'x'; LINE_BYTES_MAX];
        reader.feed(&chunk, |_| ()).unwrap();
        assert!(reader.feed(b"x", |_| ()).is_err());
    }
}

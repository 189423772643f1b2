//! A reader of `text/event-stream` bytes, as the standard describes it: fed in whatever pieces the network brings, it gives whole blocks.

/// One block of lines up to an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The `id:` field, if there was one.
    pub id: Option<String>,
    /// The `event:` field.
    pub event: Option<String>,
    /// The `data:` lines, joined by line feeds.
    pub data: Option<String>,
    /// The `retry:` field in milliseconds.
    pub retry: Option<u64>,
    /// Comment lines, without the colon.
    pub comments: Vec<String>,
}

/// Collects bytes and gives frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    begun: Frame,
    has_lines: bool,
}

impl FrameReader {
    /// Takes what came and gives the blocks that are whole now.
    pub fn feed(&mut self, piece: &[u8]) -> Vec<Frame> {
        self.bytes.extend_from_slice(piece);
        let mut whole = Vec::new();
        let mut start = 0;
        while let Some(length) = self.bytes[start..].iter().position(|byte| *byte == b'\n') {
            let line = &self.bytes[start..start + length];
            let line = String::from_utf8(line.strip_suffix(b"\r").unwrap_or(line).to_vec()).expect("a stream is UTF-8");
            start += length + 1;
            if line.is_empty() {
                if std::mem::take(&mut self.has_lines) {
                    whole.push(std::mem::take(&mut self.begun));
                }
            } else {
                self.has_lines = true;
                self.take_line(&line);
            }
        }
        self.bytes.drain(..start);
        whole
    }

    /// Bytes of a block that is not whole yet.
    pub fn has_rest(&self) -> bool {
        self.has_lines || !self.bytes.is_empty()
    }

    fn take_line(&mut self, line: &str) {
        if let Some(comment) = line.strip_prefix(':') {
            self.begun.comments.push(comment.strip_prefix(' ').unwrap_or(comment).to_owned());
            return;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match name {
            "id" => self.begun.id = Some(value),
            "event" => self.begun.event = Some(value),
            "retry" => self.begun.retry = value.parse().ok(),
            "data" => match &mut self.begun.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&value);
                }
                none => *none = Some(value),
            },
            other => panic!("a field that clients do not know: {other}"),
        }
    }
}

#[test]
fn frames_come_whole_from_any_pieces() {
    let text = "retry: 1000\nid: 1-0\n\n: beat\n\nid: 2-0\r\nevent: message.created\r\ndata: {\"é\":\ndata: 1}\n\n";
    let wanted = FrameReader::default().feed(text.as_bytes());
    assert_eq!(wanted.len(), 3);
    assert_eq!((wanted[0].retry, wanted[0].id.as_deref(), wanted[0].data.as_deref()), (Some(1000), Some("1-0"), None));
    assert_eq!(wanted[1].comments, ["beat"]);
    assert_eq!(wanted[2].data.as_deref(), Some("{\"é\":\n1}"));
    for size in 1..text.len() {
        let mut reader = FrameReader::default();
        let pieces: Vec<Frame> = text.as_bytes().chunks(size).flat_map(|piece| reader.feed(piece)).collect();
        assert_eq!(pieces, wanted, "in pieces of {size}");
        assert!(!reader.has_rest());
    }
}

//! What a message is found by, and what a search asks for.
//!
//! Both sides are folded alike ([`fold`]), so that case, accents, width, kind of kana and typographic quotes do not matter. A folded text is a
//! row of runs:
//!
//! | run | of | is found by |
//! |---|---|---|
//! | word | letters and digits of scripts that write spaces | its beginning |
//! | gram | scripts that write none, and Hangul: Han, kana, Thai, Khmer, … | every character with the one after it; the last one alone |
//! | symbol | emoji, currency signs, arrows | itself |
//! | gap | all else | nothing |
//!
//! "明日のMTG 🎉" has the terms 明日, 日の, の, mtg, 🎉. One character of a gram run is found as the beginning of a pair, two as the pair itself:
//! so neither needs a dictionary, and a word of two characters is as exact as one of ten letters.
//!
//! Terms only narrow the choice; [`SearchText::matches`] decides. It promises: every piece of the query between spaces stands in the message
//! letter by letter, a piece that begins with a word from the beginning of a word on. So `50%` finds "50% off" and not "500".

use std::collections::BTreeSet;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::message::is_visible;
use super::refusal::FieldFault;

/// Longest query in characters, after trimming.
pub const QUERY_CHARS_MAX: usize = 200;
/// Letters of a word that are kept in its term; what comes after is compared in the message.
const WORD_CHARS_MAX: usize = 24;
/// Terms of one message; a body of 4,000 characters has fewer.
const TERMS_MAX: usize = 4_000;
/// Terms of a query that are looked up; the choice is narrow enough by then.
const LOOKED_UP_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Word,
    Gram,
    Symbol,
    Gap,
}

/// The form in which texts are compared: compatibility forms made one (ＡＢＣ and ABC, ﾃﾚﾋﾞ and テレビ), case folded, accents of Latin, Greek and
/// Cyrillic taken off (voicing marks of kana are none), katakana read as hiragana, invisible characters left out.
#[must_use]
pub fn fold(text: &str) -> String {
    // Most of what is said in Latin scripts; the long way gives the same.
    if text.is_ascii() {
        return text.chars().filter(|c| !c.is_control() || c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect();
    }
    fold_any(text)
}

fn fold_any(text: &str) -> String {
    let plain = text.nfkd().filter(|c| !matches!(c, '\u{300}'..='\u{36F}') && (c.is_whitespace() || is_visible(*c)));
    // Down, up and down again: only so ẞ, ß and SS meet, and ς and σ.
    let lower = plain.flat_map(char::to_lowercase).flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    lower.filter(|c| !matches!(c, '\u{300}'..='\u{36F}')).map(one_of_kind).nfc().collect()
}

fn one_of_kind(c: char) -> char {
    match c {
        '\u{30A1}'..='\u{30F6}' => char::from_u32(u32::from(c) - 0x60).unwrap_or(c),
        '\u{2018}'..='\u{201B}' | '\u{2032}' => '\'',
        '\u{201C}'..='\u{201F}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        _ => c,
    }
}

fn run_of(c: char) -> Run {
    match c {
        // Punctuation and middle dots among the scripts below.
        '\u{E2F}' | '\u{E4F}' | '\u{E5A}' | '\u{E5B}' | '\u{F01}'..='\u{F17}' | '\u{F3A}'..='\u{F3D}' | '\u{104A}'..='\u{104F}'
        | '\u{17D4}'..='\u{17DB}' | '\u{30A0}' | '\u{30FB}' => Run::Gap,
        // Thai, Lao, Tibetan, Burmese, Hangul letters, Khmer.
        '\u{E00}'..='\u{FFF}' | '\u{1000}'..='\u{109F}' | '\u{1100}'..='\u{11FF}' | '\u{1780}'..='\u{17FF}'
        // Radicals; iteration marks and Han numerals; kana, bopomofo, Hangul letters; Han; Yi; Hangul; Han.
        | '\u{2E80}'..='\u{2FDF}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{302F}' | '\u{3031}'..='\u{3035}' | '\u{3038}'..='\u{303C}'
        | '\u{3041}'..='\u{318E}' | '\u{31A0}'..='\u{31BF}' | '\u{31F0}'..='\u{31FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{A000}'..='\u{A48C}' | '\u{A960}'..='\u{A97C}' | '\u{AC00}'..='\u{D7FB}' | '\u{F900}'..='\u{FAFF}' | '\u{1B000}'..='\u{1B16F}'
        | '\u{20000}'..='\u{3FFFD}' => Run::Gram,
        _ if c.is_alphanumeric() => Run::Word,
        // Skin tones change an emoji and are none.
        '\u{1F3FB}'..='\u{1F3FF}' => Run::Gap,
        '\u{20A0}'..='\u{20CF}' | '\u{2100}'..='\u{2BFF}' | '\u{1F000}'..='\u{1FBFF}' => Run::Symbol,
        _ => Run::Gap,
    }
}

/// The runs of a folded text, each as long as it goes; gaps are left out.
fn runs(folded: &str) -> Vec<(Run, &str)> {
    let mut runs: Vec<(Run, &str)> = Vec::new();
    let (mut run, mut from) = (Run::Gap, 0);
    for (at, c) in folded.char_indices() {
        // A mark belongs to what it stands on.
        let next = if is_combining_mark(c) && run != Run::Gap && run_of(c) == Run::Gap { run } else { run_of(c) };
        if next != run {
            if run != Run::Gap {
                runs.push((run, &folded[from..at]));
            }
            (run, from) = (next, at);
        }
    }
    if run != Run::Gap {
        runs.push((run, &folded[from..]));
    }
    runs
}

fn beginning(word: &str) -> String {
    word.chars().take(WORD_CHARS_MAX).collect()
}

/// A body without the places of its pictures: nobody looks for the letters of an id.
fn words_of(body: &str) -> String {
    let mut words = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((before, picture)) = rest.split_once("![img:") {
        words.push_str(before);
        words.push(' ');
        rest = picture.split_once(']').map_or("", |(_, after)| after);
    }
    words + rest
}

/// The terms that a message with this body is found by, each once.
#[must_use]
pub fn terms_of(body: &str) -> BTreeSet<String> {
    let folded = fold(&words_of(body));
    let mut terms = BTreeSet::new();
    for (run, text) in runs(&folded) {
        match run {
            Run::Word => drop(terms.insert(beginning(text))),
            Run::Symbol => terms.extend(text.chars().filter(|c| run_of(*c) == Run::Symbol).map(String::from)),
            Run::Gram => terms.extend(text.char_indices().map(|(at, _)| text[at..].chars().take(2).collect())),
            Run::Gap => {}
        }
        if terms.len() >= TERMS_MAX {
            break;
        }
    }
    terms
}

/// A term that a message must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Needed {
    /// The term, or its beginning.
    pub term: String,
    /// Whether a term that begins with it is enough.
    pub beginning: bool,
}

/// A query, proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchText {
    /// What stands between spaces, folded.
    pieces: Vec<String>,
    needed: Vec<Needed>,
}

impl SearchText {
    /// Reads a query.
    ///
    /// # Errors
    /// When it is empty or longer than 200 characters after trimming, or holds nothing that can be looked for.
    pub fn parse(query: &str) -> Result<Self, FieldFault> {
        let query = query.trim();
        if query.is_empty() || query.chars().count() > QUERY_CHARS_MAX {
            return Err(FieldFault::new("must be 1 to 200 characters"));
        }
        let folded = fold(query);
        let pieces: Vec<String> = folded.split_whitespace().map(without_full_stop).map(str::to_owned).collect();
        let mut needed: BTreeSet<Needed> = BTreeSet::new();
        for (run, text) in pieces.iter().flat_map(|piece| runs(piece)) {
            match run {
                Run::Word => drop(needed.insert(Needed { term: beginning(text), beginning: true })),
                Run::Symbol => {
                    let symbols = text.chars().filter(|c| run_of(*c) == Run::Symbol);
                    needed.extend(symbols.map(|c| Needed { term: c.into(), beginning: false }));
                }
                Run::Gram => {
                    let chars: Vec<char> = text.chars().collect();
                    needed.extend(chars.windows(2).map(|pair| Needed { term: pair.iter().collect(), beginning: false }));
                    if let [alone] = chars[..] {
                        needed.insert(Needed { term: alone.into(), beginning: true });
                    }
                }
                Run::Gap => {}
            }
        }
        if needed.is_empty() {
            return Err(FieldFault::new("must hold a letter, a digit or a symbol"));
        }
        let mut needed: Vec<Needed> = needed.into_iter().collect();
        // Pairs and long words are rarer than short beginnings.
        needed.sort_by_key(|need| (need.beginning, std::cmp::Reverse(need.term.len())));
        needed.truncate(LOOKED_UP_MAX);
        Ok(Self { pieces, needed })
    }

    /// Terms that every message has that [`SearchText::matches`]; at least one.
    #[must_use]
    pub fn needed(&self) -> &[Needed] {
        &self.needed
    }

    /// Whether a message with this body is meant.
    #[must_use]
    pub fn matches(&self, body: &str) -> bool {
        let folded = fold(&words_of(body));
        self.pieces.iter().all(|piece| stands_in(piece, &folded))
    }
}

/// A piece without the comma or full stop that ends it, if something is left.
fn without_full_stop(piece: &str) -> &str {
    let shorter = piece.trim_end_matches(['.', ',', ';', ':', '!', '?', '。', '、']);
    if runs(shorter).is_empty() { piece } else { shorter }
}

fn stands_in(piece: &str, folded: &str) -> bool {
    let from_beginning = piece.chars().next().is_some_and(|c| run_of(c) == Run::Word);
    folded.match_indices(piece).any(|(at, _)| !from_beginning || !in_a_word(&folded[..at]))
}

/// Whether a text ends within a word.
fn in_a_word(text: &str) -> bool {
    let mut marks = text.chars().rev().skip_while(|c| is_combining_mark(*c) && run_of(*c) == Run::Gap);
    marks.next().is_some_and(|c| run_of(c) == Run::Word)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms(body: &str) -> Vec<String> {
        terms_of(body).into_iter().collect()
    }

    fn finds(query: &str, body: &str) -> bool {
        let text = SearchText::parse(query).unwrap_or_else(|fault| panic!("{query:?}: {}", fault.fault));
        let terms = terms_of(body);
        let has = |need: &Needed| terms.iter().any(|t| if need.beginning { t.starts_with(&need.term) } else { *t == need.term });
        let (by_terms, matches) = (text.needed().iter().all(has), text.matches(body));
        assert!(by_terms || !matches, "{query:?} stands in {body:?}, but the terms {terms:?} do not lead there: {:?}", text.needed());
        matches
    }

    #[test]
    fn a_text_falls_into_terms() {
        assert_eq!(terms("明日のMTG 🎉!"), ["mtg", "の", "日の", "明日", "🎉"]);
        assert_eq!(terms("Don't panic, 42%"), ["42", "don", "panic", "t"]);
        assert_eq!(terms("한국어"), ["국어", "어", "한국"]);
        assert_eq!(terms("👍🏽 👨‍👩‍👧 ❤️"), ["❤", "👍", "👧", "👨", "👩"]);
        assert_eq!(terms("see ![img:0198-abc]and"), ["and", "see"]);
        assert!(terms("... \u{200B} — % \\ '").is_empty());
    }

    #[test]
    fn what_does_not_matter_does_not_matter() {
        for (query, body) in [
            ("cafe", "Café"),
            ("CAFÉ", "cafe\u{301}s"),
            ("strasse", "Die STRAẞE"),
            ("straße", "Strasse"),
            ("ΟΔΟΣ", "οδος"),
            ("истек", "Истёк"),
            ("istanbul", "İstanbul"),
            ("ＡＢＣ１", "abc123"),
            ("てれび", "ﾃﾚﾋﾞを見る"),
            ("ガギ", "がぎぐ"),
            ("don't", "I don’t know"),
            ("ﬁn", "final"),
            ("👍", "ok 👍🏽"),
            ("❤️", "❤"),
            ("हिन्दी", "मुझे हिन्दी आती है"),
        ] {
            assert!(finds(query, body), "{query:?} in {body:?}");
        }
    }

    #[test]
    fn the_short_way_to_fold_gives_the_same() {
        let ascii: String = (0..128_u8).map(char::from).collect();
        assert_eq!(fold(&ascii), fold_any(&ascii));
    }

    #[test]
    fn what_matters_does() {
        for (query, body) in [
            ("か", "が"),
            ("fe", "cafe"),
            ("50%", "500 things"),
            ("c++", "c and c#"),
            ("a_b", "a b"),
            ("\"quoted\"", "quoted"),
            ("天好", "天气好"),
            ("天气好吗", "天气 好吗"),
            ("123", "abc123"),
            ("hello world", "hello there"),
            ("🎉", "🎊"),
        ] {
            assert!(!finds(query, body), "{query:?} in {body:?}");
        }
    }

    #[test]
    fn words_are_found_by_their_beginning_and_grams_anywhere() {
        for (query, body) in [
            ("hel wor", "Hello, world"),
            ("world hello", "hello world"),
            ("hello,", "hello world"),
            ("天气", "今天天气好"),
            ("气", "今天天气"),
            ("天气好吗", "今天天气好吗？"),
            ("東京タワー", "昨日東京タワーへ行った"),
            ("食べ", "ラーメンを食べたい"),
            ("iPhoneを", "新しいiPhoneを買う"),
            ("학교", "초등학교에서"),
            ("สวัสดี", "พูดสวัสดีครับ"),
            ("50%", "now 50% off"),
            ("c++", "C++ and C#"),
            ("100\\%_", "x 100\\%_y"),
            ("salt & pep", "salt & pepper"),
            ("mp3", "song.mp3"),
            ("🇯🇵", "🇯🇵!"),
        ] {
            assert!(finds(query, body), "{query:?} in {body:?}");
        }
    }

    #[test]
    fn a_query_has_something_to_look_for() {
        for query in ["", "   ", "%", "...", "\u{200B}", "' \" \\", &"x".repeat(201)] {
            assert!(SearchText::parse(query).is_err(), "{query:?}");
        }
        assert!(SearchText::parse(&format!("  {}  ", "天".repeat(200))).is_ok());
    }

    proptest! {
        #[test]
        fn a_whole_body_finds_itself(body in "[a-cé-ëß' %.かガ天気한👍🏽\u{3099}\u{301} ]{1,24}") {
            if let Ok(text) = SearchText::parse(&body) {
                // What begins with a mark that stands on nothing is no word.
                let orphan = fold(body.trim()).split_whitespace().any(|p| p.chars().next().is_some_and(is_combining_mark));
                prop_assert!(orphan || text.matches(&body));
                prop_assert!(orphan || finds(&body, &body));
            }
        }

        #[test]
        fn what_is_meant_is_led_to(query in "[ab' %.か天気한👍 ]{1,6}", body in "[ab' %.か天気한👍 ]{0,24}") {
            if SearchText::parse(&query).is_ok() {
                finds(&query, &body);
            }
        }
    }
}

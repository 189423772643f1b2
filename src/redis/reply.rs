//! Replies of Redis as plain values, and a reader that takes them apart without a panic.
//!
//! Shapes that only RESP3 knows are folded into those of RESP2, so that a script's reply reads the same whichever protocol is spoken:
//! a map is a flat list of keys and values, a set is a list, a double is its text, a boolean is 1 or 0.

use bytes::Bytes;

use super::stored_form::Unreadable;

/// A reply of Redis, without the client's own types.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Nothing.
    Nil,
    /// An integer.
    Int(i64),
    /// A string of bytes (simple strings too).
    Bulk(Bytes),
    /// A list.
    List(Vec<Reply>),
    /// An error inside a list (at the top it is a `LinkError`).
    Error(String),
}

impl Reply {
    /// Whether it is nothing.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        matches!(self, Self::Nil)
    }

    /// The bytes of a string.
    ///
    /// # Errors
    /// When it is no string.
    pub fn as_bytes(&self) -> Result<&Bytes, Unreadable> {
        match self {
            Self::Bulk(bytes) => Ok(bytes),
            _ => Err(Unreadable("not a string")),
        }
    }

    /// A string as text.
    ///
    /// # Errors
    /// When it is no string or not UTF-8.
    pub fn as_str(&self) -> Result<&str, Unreadable> {
        std::str::from_utf8(self.as_bytes()?).map_err(|_| Unreadable("not utf-8"))
    }

    /// An integer, or a string that spells one.
    ///
    /// # Errors
    /// When it is neither.
    pub fn as_i64(&self) -> Result<i64, Unreadable> {
        match self {
            Self::Int(n) => Ok(*n),
            _ => self.as_str()?.parse().map_err(|_| Unreadable("not a number")),
        }
    }

    /// An integer that is not negative, or a string that spells one.
    ///
    /// # Errors
    /// When it is neither.
    pub fn as_u64(&self) -> Result<u64, Unreadable> {
        match self {
            Self::Int(n) => u64::try_from(*n).map_err(|_| Unreadable("a negative number")),
            _ => self.as_str()?.parse().map_err(|_| Unreadable("not a number")),
        }
    }

    /// Whether an integer is other than 0.
    ///
    /// # Errors
    /// When it is no number.
    pub fn as_bool(&self) -> Result<bool, Unreadable> {
        self.as_i64().map(|n| n != 0)
    }

    /// The items of a list; nothing is an empty list.
    ///
    /// # Errors
    /// When it is no list.
    pub fn as_list(&self) -> Result<&[Reply], Unreadable> {
        match self {
            Self::List(items) => Ok(items),
            Self::Nil => Ok(&[]),
            _ => Err(Unreadable("not a list")),
        }
    }

    /// Nothing becomes `None`, so that what may be missing can be read with the other functions.
    #[must_use]
    pub fn present(&self) -> Option<&Self> {
        (!self.is_nil()).then_some(self)
    }

    /// Key and value pairs of a flat list (`HGETALL`).
    ///
    /// # Errors
    /// When it is no list, or one of odd length.
    pub fn as_pairs(&self) -> Result<impl Iterator<Item = (&Reply, &Reply)>, Unreadable> {
        let items = self.as_list()?;
        if items.len() % 2 != 0 {
            return Err(Unreadable("a list of odd length"));
        }
        Ok(items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])))
    }

    /// A reader over the items of a list; a lone string or integer is read as a list of one.
    ///
    /// # Errors
    /// When it is nothing, or an error.
    pub fn items(&self) -> Result<Items<'_>, Unreadable> {
        match self {
            Self::List(items) => Ok(Items(items)),
            Self::Nil | Self::Error(_) => Err(Unreadable("not a list")),
            one => Ok(Items(std::slice::from_ref(one))),
        }
    }
}

/// Reads a list from its beginning to its end: the word that says what happened first, then what belongs to it.
#[derive(Clone, Debug)]
pub struct Items<'a>(&'a [Reply]);

impl<'a> Items<'a> {
    /// The next item as it is.
    ///
    /// # Errors
    /// When the list has ended.
    pub fn item(&mut self) -> Result<&'a Reply, Unreadable> {
        let (first, rest) = self.0.split_first().ok_or(Unreadable("the list is too short"))?;
        self.0 = rest;
        Ok(first)
    }

    /// The next item as text.
    ///
    /// # Errors
    /// When the list has ended or it is no text.
    pub fn str(&mut self) -> Result<&'a str, Unreadable> {
        self.item()?.as_str()
    }

    /// The next item as bytes.
    ///
    /// # Errors
    /// When the list has ended or it is no string.
    pub fn bytes(&mut self) -> Result<&'a Bytes, Unreadable> {
        self.item()?.as_bytes()
    }

    /// The next item as a number that is not negative.
    ///
    /// # Errors
    /// When the list has ended or it is no such number.
    pub fn u64(&mut self) -> Result<u64, Unreadable> {
        self.item()?.as_u64()
    }

    /// The next item as a number.
    ///
    /// # Errors
    /// When the list has ended or it is no number.
    pub fn i64(&mut self) -> Result<i64, Unreadable> {
        self.item()?.as_i64()
    }

    /// The next item as yes (not 0) or no.
    ///
    /// # Errors
    /// When the list has ended or it is no number.
    pub fn bool(&mut self) -> Result<bool, Unreadable> {
        self.item()?.as_bool()
    }

    /// The next item as a list.
    ///
    /// # Errors
    /// When the list has ended or it is no list.
    pub fn list(&mut self) -> Result<&'a [Reply], Unreadable> {
        self.item()?.as_list()
    }

    /// All that is left.
    #[must_use]
    pub fn rest(self) -> &'a [Reply] {
        self.0
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An answer whose first word this build does not know.
///
/// # Errors
/// Always; written so that it stands as the last arm of a `match`.
pub fn unknown_word<T>(script: &'static str) -> Result<T, Unreadable> {
    Err(Unreadable(script))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &'static str) -> Reply {
        Reply::Bulk(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn a_tagged_reply_reads_in_order() {
        let reply = Reply::List(vec![bulk("new"), Reply::Int(7), bulk("12"), Reply::Nil, Reply::List(vec![bulk("a")])]);
        let mut items = reply.items().unwrap();
        assert_eq!(items.str(), Ok("new"));
        assert_eq!(items.u64(), Ok(7));
        assert_eq!(items.u64(), Ok(12));
        assert_eq!(items.item().unwrap().present(), None);
        assert_eq!(items.list().unwrap().len(), 1);
        assert!(items.is_empty());
        assert!(items.item().is_err());
    }

    #[test]
    fn a_lone_word_is_a_list_of_one() {
        assert_eq!(bulk("cold").items().unwrap().str(), Ok("cold"));
        assert!(Reply::Nil.items().is_err());
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(Reply::Int(-1).as_u64().is_err());
        assert!(bulk("x").as_u64().is_err());
        assert!(bulk("x").as_list().is_err());
        assert!(Reply::Int(1).as_str().is_err());
        assert!(Reply::Bulk(Bytes::from_static(&[0xff])).as_str().is_err());
        assert!(Reply::List(vec![Reply::Nil]).as_pairs().is_err());
        assert_eq!(Reply::Nil.as_list(), Ok(&[][..]));
        assert_eq!(bulk("18446744073709551615").as_u64(), Ok(u64::MAX));
    }
}

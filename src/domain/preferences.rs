//! What one member has set for oneself in a conversation, and what hides or clears it again by itself.
//!
//! Two of the five are kept as places and not as yes or no, so that what ends them needs no write of its own:
//!
//! - hidden is "hidden up to this seq": any later seq, a message of whomever or one of the timeline, shows the conversation again;
//! - marked unread is "marked while I had read up to here": moving the watermark, by reading or by sending, takes the mark away.

use super::ids::Seq;

/// Preferences as the stores keep them. They belong to one membership: who comes back begins with none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// No notifications; unread messages are counted apart.
    pub muted: bool,
    /// Kept on top by the client.
    pub pinned: bool,
    /// The head when it was hidden.
    pub hidden_to: Option<Seq>,
    /// The watermark when it was marked.
    pub marked_at: Option<Seq>,
    /// Messages up to this one are not there for this member; only ever raised.
    pub cleared_to: Seq,
}

/// Preferences as they show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownPreferences {
    /// No notifications.
    pub muted: bool,
    /// Kept on top.
    pub pinned: bool,
    /// Out of the list.
    pub hidden: bool,
    /// Marked by hand.
    pub marked_unread: bool,
    /// Messages up to this one are not there.
    pub cleared_to: Seq,
}

/// What to set; `None` leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreferencesWish {
    /// No notifications.
    pub muted: Option<bool>,
    /// Kept on top.
    pub pinned: Option<bool>,
    /// Out of the list.
    pub hidden: Option<bool>,
    /// Marked by hand.
    pub marked_unread: Option<bool>,
    /// Further than before; above the head is the head.
    pub cleared_to: Option<Seq>,
}

impl Preferences {
    /// How they show where the conversation's head and the member's watermark stand.
    #[must_use]
    pub fn shown(&self, head: Seq, read: Seq) -> ShownPreferences {
        ShownPreferences {
            muted: self.muted,
            pinned: self.pinned,
            hidden: self.hidden_to.is_some_and(|to| head <= to),
            marked_unread: self.marked_at.is_some_and(|at| read <= at),
            cleared_to: self.cleared_to,
        }
    }

    /// The same without what has ended by itself.
    #[must_use]
    pub fn settled(&self, head: Seq, read: Seq) -> Self {
        Self::of_shown(self.shown(head, read), head, read)
    }

    fn of_shown(shown: ShownPreferences, head: Seq, read: Seq) -> Self {
        Self {
            muted: shown.muted,
            pinned: shown.pinned,
            hidden_to: shown.hidden.then_some(head),
            marked_at: shown.marked_unread.then_some(read),
            cleared_to: shown.cleared_to,
        }
    }

    /// The preferences afterwards; `None` when everything shows so already.
    #[must_use]
    pub fn changed(&self, wish: &PreferencesWish, head: Seq, read: Seq) -> Option<Self> {
        let shown = self.shown(head, read);
        let wanted = ShownPreferences {
            muted: wish.muted.unwrap_or(shown.muted),
            pinned: wish.pinned.unwrap_or(shown.pinned),
            hidden: wish.hidden.unwrap_or(shown.hidden),
            marked_unread: wish.marked_unread.unwrap_or(shown.marked_unread),
            cleared_to: shown.cleared_to.max(wish.cleared_to.unwrap_or(0).min(head)),
        };
        (wanted != shown).then(|| Self::of_shown(wanted, head, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_by_itself_ends_where_the_next_thing_happens() {
        let all =
            PreferencesWish { muted: Some(true), pinned: Some(true), hidden: Some(true), marked_unread: Some(true), cleared_to: Some(9) };
        let set = Preferences::default().changed(&all, 5, 3).unwrap();
        let shown = ShownPreferences { muted: true, pinned: true, hidden: true, marked_unread: true, cleared_to: 5 };
        assert_eq!(set.shown(5, 3), shown);
        assert_eq!(set.changed(&all, 5, 3), None, "it is so already");
        assert_eq!(set.shown(6, 3), ShownPreferences { hidden: false, ..shown }, "a new message");
        assert_eq!(set.shown(5, 4), ShownPreferences { marked_unread: false, ..shown }, "a read");
        let again = set.changed(&PreferencesWish { hidden: Some(true), ..PreferencesWish::default() }, 6, 4).unwrap();
        assert_eq!((again.hidden_to, again.marked_at), (Some(6), None), "what has ended is not kept");
        assert_eq!(set.changed(&PreferencesWish { cleared_to: Some(2), ..PreferencesWish::default() }, 6, 3), None, "never back");
    }
}

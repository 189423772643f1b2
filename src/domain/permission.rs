//! Who may do what: one table. `decide` in `change.rs` asks it, and so do sends.

use super::ids::Kind;
use super::membership::Role;

/// What one may want to do in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Read history, members, events; move one's own watermark.
    Read,
    /// Send a message.
    Send,
    /// Show that one types.
    Type,
    /// Bring somebody in.
    Invite,
    /// Go.
    Leave,
    /// Take somebody else out.
    Remove,
    /// Change the title.
    Rename,
    /// Give one's own message other words.
    EditOwn,
    /// Take one's own message back.
    DeleteOwn,
    /// Take down anybody's message.
    DeleteAny,
    /// Put an emoji on a message.
    React,
    /// Post in the name of somebody else who belongs to the conversation.
    PostAs,
    /// Bring in old messages.
    Import,
    /// Take everything out.
    Export,
}

impl Act {
    /// Every act, in the order of the documentation's table.
    pub const ALL: &'static [Self] = &[
        Self::Read,
        Self::Send,
        Self::Type,
        Self::Invite,
        Self::Leave,
        Self::Remove,
        Self::Rename,
        Self::EditOwn,
        Self::DeleteOwn,
        Self::DeleteAny,
        Self::React,
        Self::PostAs,
        Self::Import,
        Self::Export,
    ];
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// A member with this role.
    Member(Role),
    /// The host application's server.
    Service,
    /// A moderator, member or not.
    Admin,
}

/// Whether `standing` may `act` in a conversation of this kind.
#[must_use]
pub fn may(act: Act, kind: Kind, standing: Standing) -> bool {
    match (kind, standing, act) {
        (_, Standing::Member(_), Act::Read) => true,
        (Kind::Single | Kind::Group, Standing::Member(_), Act::Send | Act::Type) => true,
        (Kind::Group, Standing::Member(_), Act::Invite | Act::Leave) => true,
        (Kind::Group, Standing::Member(role), Act::Remove | Act::Rename) => role == Role::Owner,
        (Kind::Single | Kind::Group, Standing::Member(_), Act::EditOwn | Act::DeleteOwn | Act::React) => true,
        (Kind::Group, Standing::Member(role), Act::DeleteAny) => role == Role::Owner,
        (Kind::System, Standing::Service, Act::Read | Act::Send | Act::EditOwn | Act::DeleteOwn) => true,
        (Kind::System, Standing::Service, Act::Invite | Act::Remove | Act::Rename) => true,
        (_, Standing::Service, Act::PostAs | Act::Import | Act::Export) => true,
        (_, Standing::Admin, Act::Export) => true,
        (_, Standing::Admin, Act::DeleteAny) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_contracts() {
        let yes: Vec<String> = [Kind::Single, Kind::Group, Kind::System]
            .into_iter()
            .flat_map(|kind| {
                [Standing::Member(Role::Owner), Standing::Member(Role::Member), Standing::Service, Standing::Admin].into_iter().flat_map(
                    move |standing| Act::ALL.iter().filter(move |act| may(**act, kind, standing)).map(move |a| (kind, standing, *a)),
                )
            })
            .map(|(kind, standing, act)| match standing {
                Standing::Member(role) => format!("{} {} {act:?}", kind.as_str(), role.as_str()),
                Standing::Service => format!("{} service {act:?}", kind.as_str()),
                Standing::Admin => format!("{} admin {act:?}", kind.as_str()),
            })
            .collect();
        let row = |who: &str, acts: &str| acts.split(' ').map(|act| format!("{who} {act}")).collect::<Vec<_>>();
        let expected = [
            row("single owner", "Read Send Type EditOwn DeleteOwn React"),
            row("single member", "Read Send Type EditOwn DeleteOwn React"),
            row("single service", "PostAs Import Export"),
            row("single admin", "DeleteAny Export"),
            row("group owner", "Read Send Type Invite Leave Remove Rename EditOwn DeleteOwn DeleteAny React"),
            row("group member", "Read Send Type Invite Leave EditOwn DeleteOwn React"),
            row("group service", "PostAs Import Export"),
            row("group admin", "DeleteAny Export"),
            row("system owner", "Read"),
            row("system member", "Read"),
            row("system service", "Read Send Invite Remove Rename EditOwn DeleteOwn PostAs Import Export"),
            row("system admin", "DeleteAny Export"),
        ];
        assert_eq!(yes, expected.concat());
    }
}

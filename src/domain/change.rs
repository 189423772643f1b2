//! What a wish about a conversation comes to: `decide(state, command)` gives what happens, or a refusal. The scripts only apply it.

use super::conversation::Conversation;
use super::ids::{Kind, UserId};
use super::membership::{Member, Role};
use super::permission::{Act, Standing, may};
use super::refusal::{FieldError, Refusal};

/// A wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bring a user in.
    Invite(UserId),
    /// Bring in those of these who do not belong yet.
    InviteAll(Vec<UserId>),
    /// Take a user out; oneself is leaving.
    Remove(UserId),
    /// Another title.
    Rename(String),
}

/// What happens, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A user joins as a member.
    Joined(UserId),
    /// A user leaves of their own will.
    Left(UserId),
    /// A user is removed.
    Removed(UserId),
    /// Another owner.
    OwnerChanged(UserId),
    /// Another title.
    Renamed(String),
    /// The last member is gone.
    Dissolved,
}

/// Decides. `service` says that the actor is the host application's server, which needs no membership where the table gives it rights.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member, then what the permission table forbids, then limits.
pub fn decide(
    conversation: &Conversation,
    members: &[Member],
    actor: &UserId,
    service: bool,
    command: &Command,
    members_max: u64,
) -> Result<Vec<Happening>, Refusal> {
    let find = |user: &UserId| members.iter().find(|m| &m.user == user);
    let standing = match find(actor) {
        _ if service && may(Act::Read, conversation.kind(), Standing::Service) => Standing::Service,
        Some(me) => Standing::Member(me.role),
        None => return Err(Refusal::NotFound),
    };
    let allowed = |act| may(act, conversation.kind(), standing);
    match command {
        Command::Invite(user) => {
            if !allowed(Act::Invite) {
                return Err(Refusal::Forbidden(match conversation.kind() {
                    Kind::Single => "a single conversation has no invitations",
                    _ => "only the service brings users into this conversation",
                }));
            }
            if find(user).is_some() {
                return Ok(Vec::new());
            }
            if conversation.member_count >= members_max {
                return Err(FieldError::new("user_id", format!("cannot join: the group has its {members_max} members")).into());
            }
            Ok(vec![Happening::Joined(user.clone())])
        }
        Command::InviteAll(users) => {
            let new: Vec<&UserId> = users.iter().filter(|user| find(user).is_none()).collect();
            if !new.is_empty() && !allowed(Act::Invite) {
                return Err(Refusal::Forbidden("only the service brings users into this conversation"));
            }
            if conversation.member_count + new.len() as u64 > members_max {
                return Err(FieldError::new("members", format!("must not make it more than {members_max} members")).into());
            }
            Ok(new.into_iter().map(|user| Happening::Joined(user.clone())).collect())
        }
        Command::Remove(user) if user == actor && standing != Standing::Service => {
            if !allowed(Act::Leave) {
                return Err(Refusal::Forbidden("only groups can be left"));
            }
            let mut happenings = vec![Happening::Left(user.clone())];
            let rest = || members.iter().filter(|m| &m.user != actor);
            if standing == Standing::Member(Role::Owner)
                // Revs order joins even when two have the same millisecond; founders share a rev and are told apart by name.
                && let Some(heir) = rest().min_by(|a, b| (a.joined_rev, &a.user).cmp(&(b.joined_rev, &b.user)))
            {
                happenings.push(Happening::OwnerChanged(heir.user.clone()));
            }
            if rest().next().is_none() {
                happenings.push(Happening::Dissolved);
            }
            Ok(happenings)
        }
        Command::Remove(user) => {
            if !allowed(Act::Remove) {
                return Err(Refusal::Forbidden("only a group's owner removes members"));
            }
            if find(user).is_none() {
                return Err(Refusal::NotFound);
            }
            Ok(vec![Happening::Removed(user.clone())])
        }
        Command::Rename(title) => {
            if !allowed(Act::Rename) {
                return Err(Refusal::Forbidden("only a group's owner changes its title"));
            }
            if conversation.title.as_ref() == Some(title) {
                return Ok(Vec::new());
            }
            Ok(vec![Happening::Renamed(title.clone())])
        }
    }
}

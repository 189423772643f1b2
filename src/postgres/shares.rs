//! What messages share, as the host application told it.

use super::connection::Archive;
use super::error::{ArchiveError, Fault};
use crate::domain::ids::Millis;
use crate::domain::message::Share;
use crate::domain::share::{ShareCard, ShareFacts};

/// One row.
#[derive(sqlx::FromRow)]
struct ShareRow {
    r#type: String,
    id: String,
    title: Option<String>,
    url: Option<String>,
    image_url: Option<String>,
    gone: bool,
}

impl ShareRow {
    fn into_facts(self) -> Result<(Share, ShareFacts), Fault> {
        let share = Share { kind: self.r#type, id: self.id };
        match (self.gone, self.title, self.url) {
            (true, ..) => Ok((share, ShareFacts::Gone)),
            (false, Some(title), Some(url)) => Ok((share, ShareFacts::Told(ShareCard { title, url, image_url: self.image_url }))),
            _ => Err(Fault::Data("a stored share is neither told nor gone")),
        }
    }
}

impl Archive {
    /// Keeps what the host application tells about something, in place of what it told before.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn tell_share(&self, share: &Share, facts: &ShareFacts, at: Millis) -> Result<(), ArchiveError> {
        let (share, facts) = (share.clone(), facts.clone());
        self.unit("tell_share", move |connection| {
            let (share, facts) = (share.clone(), facts.clone());
            Box::pin(async move {
                let card = match &facts {
                    ShareFacts::Told(card) => Some(card),
                    ShareFacts::Gone => None,
                };
                sqlx::query(
                    "INSERT INTO shared_items (type, id, title, url, image_url, gone, updated_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)
                     ON CONFLICT (type, id) DO UPDATE SET title = excluded.title, url = excluded.url, image_url = excluded.image_url,
                         gone = excluded.gone, updated_at_ms = excluded.updated_at_ms",
                )
                .bind(&share.kind)
                .bind(&share.id)
                .bind(card.map(|card| card.title.as_str()))
                .bind(card.map(|card| card.url.as_str()))
                .bind(card.and_then(|card| card.image_url.as_deref()))
                .bind(card.is_none())
                .bind(at)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// What was told about those of `shares` of which anything was.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn shares_of(&self, shares: &[Share]) -> Result<Vec<(Share, ShareFacts)>, ArchiveError> {
        let (types, ids): (Vec<String>, Vec<String>) = shares.iter().map(|share| (share.kind.clone(), share.id.clone())).unzip();
        self.unit("shares_of", move |connection| {
            let (types, ids) = (types.clone(), ids.clone());
            Box::pin(async move {
                let rows: Vec<ShareRow> = sqlx::query_as(
                    "SELECT s.type, s.id, s.title, s.url, s.image_url, s.gone
                     FROM unnest($1::text[], $2::text[]) AS asked (type, id)
                     JOIN shared_items AS s ON s.type = asked.type AND s.id = asked.id",
                )
                .bind(types)
                .bind(ids)
                .fetch_all(connection)
                .await?;
                rows.into_iter().map(ShareRow::into_facts).collect()
            })
        })
        .await
    }
}

//! Pictures: their rows, who claims them for a message, which messages show them, and which may be swept.
//!
//! | a picture is kept because | as long as |
//! |---|---|
//! | it is new | its first check, a day after the upload |
//! | a send claims it | the claim ends, or the archive's row of the message replaces it |
//! | a message shows it | the archive's row says so |
//!
//! A claim and a check of the sweeper cannot cross: both lock the picture's row, and what the sweeper decides by it reads after it has
//! the lock, in a statement of its own (an older snapshot would not show a claim that was made while it waited).

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::connection::{Archive, read, read_conversation, read_user, stored};
use super::error::{ArchiveError, Fault};
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::media::{Media, MediaType, Picture};

/// A place at which a picture is, or may be, shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// On these messages, the newest first; an edit that puts it there may not be archived yet.
    On(ConversationId, Vec<Seq>),
    /// On a message that is not archived yet, or never came to be; no claim for one was made before this time.
    Claimed(ConversationId, Millis),
}

/// The message for which pictures are claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFor {
    /// Where.
    pub conversation: ConversationId,
    /// Its id.
    pub message: Uuid,
    /// Its number, when it has one: an edit.
    pub seq: Option<Seq>,
}

/// What became of a picture that the sweeper looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Pictures looked at.
    pub checked: usize,
    /// Those whose bytes are to be removed now; their rows say so.
    pub sweeping: Vec<Uuid>,
}

type Row = (Uuid, String, String, i64, i32, i32);

fn into_media((id, owner, mime_type, size, width, height): Row) -> Result<Media, Fault> {
    let side = |number: i32| u32::try_from(number).map_err(|_| Fault::Data("a stored measure is negative"));
    Ok(Media {
        id,
        owner: read_user(&owner)?,
        picture: Picture {
            kind: MediaType::parse(&mime_type).ok_or(Fault::Data("a stored media type is none"))?,
            width: side(width)?,
            height: side(height)?,
        },
        size: read(size)?,
    })
}

impl Archive {
    /// Notes an upload before its bytes are stored. Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn begin_media(&self, media: &Media, now: Millis, check_at: Millis) -> Result<(), ArchiveError> {
        let media = media.clone();
        self.unit("begin_media", move |connection| {
            let media = media.clone();
            Box::pin(async move {
                let side = |number: u32| i32::try_from(number).map_err(|_| Fault::Data("a measure does not fit an integer"));
                sqlx::query(
                    "INSERT INTO media (id, owner, state, mime_type, size, width, height, created_at_ms, check_at_ms)
                     VALUES ($1, $2, 'uploading', $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
                )
                .bind(media.id)
                .bind(media.owner.as_str())
                .bind(media.picture.kind.as_str())
                .bind(stored(media.size)?)
                .bind(side(media.picture.width)?)
                .bind(side(media.picture.height)?)
                .bind(now)
                .bind(check_at)
                .execute(connection)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Notes that the bytes of an upload are stored. False when it was swept meanwhile. Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn finish_media(&self, id: Uuid) -> Result<bool, ArchiveError> {
        self.unit("finish_media", move |connection| {
            Box::pin(async move {
                let done = sqlx::query("UPDATE media SET state = 'ready' WHERE id = $1 AND state IN ('uploading', 'ready')")
                    .bind(id)
                    .execute(connection)
                    .await?;
                Ok(done.rows_affected() == 1)
            })
        })
        .await
    }

    /// A picture that is ready.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn ready_media(&self, id: Uuid) -> Result<Option<Media>, ArchiveError> {
        self.unit("ready_media", move |connection| {
            Box::pin(async move {
                let row: Option<Row> =
                    sqlx::query_as("SELECT id, owner, mime_type, size, width, height FROM media WHERE id = $1 AND state = 'ready'")
                        .bind(id)
                        .fetch_optional(connection)
                        .await?;
                row.map(into_media).transpose()
            })
        })
        .await
    }

    /// The owner's pictures among `ids` that are ready, claimed from `now` until `until` for a message if there is one. When one of `ids` is missing from the
    /// answer nothing was claimed. Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn claim_media(
        &self,
        owner: &UserId,
        ids: &[Uuid],
        claim: Option<ClaimFor>,
        now: Millis,
        until: Millis,
    ) -> Result<Vec<Media>, ArchiveError> {
        let (owner, ids) = (owner.clone(), ids.to_vec());
        self.unit("claim_media", move |connection| {
            let (owner, ids, claim) = (owner.clone(), ids.clone(), claim.clone());
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                // In the order of the key, as everybody locks these rows.
                let rows: Vec<Row> = sqlx::query_as(
                    "SELECT id, owner, mime_type, size, width, height FROM media
                     WHERE id = ANY($1) AND owner = $2 AND state = 'ready' ORDER BY id FOR SHARE",
                )
                .bind(&ids)
                .bind(owner.as_str())
                .fetch_all(&mut *tx)
                .await?;
                let media = rows.into_iter().map(into_media).collect::<Result<Vec<_>, _>>()?;
                let all = ids.iter().all(|id| media.iter().any(|one| one.id == *id));
                if let Some(claim) = claim.filter(|_| all) {
                    sqlx::query(
                        "INSERT INTO media_claims (media_id, message_id, conv_id, seq, made_at_ms, until_ms)
                         SELECT id, $2, $3, $4, $5, $6 FROM unnest($1::uuid[]) AS u (id) ORDER BY id
                         ON CONFLICT (media_id, message_id) DO UPDATE SET until_ms = GREATEST(media_claims.until_ms, excluded.until_ms)",
                    )
                    .bind(&ids)
                    .bind(claim.message)
                    .bind(claim.conversation.as_str())
                    .bind(claim.seq.map(stored).transpose()?)
                    .bind(now)
                    .bind(until)
                    .execute(&mut *tx)
                    .await?;
                }
                tx.commit().await?;
                Ok(media)
            })
        })
        .await
    }

    /// Where a picture is shown, at most `limit` places: first the conversations of which the reader is a member here (a membership that
    /// just began may be missing), then the others.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn media_shown(&self, id: Uuid, reader: &UserId, now: Millis, limit: u64) -> Result<Vec<Shown>, ArchiveError> {
        let reader = reader.clone();
        self.unit("media_shown", move |connection| {
            let reader = reader.clone();
            Box::pin(async move {
                let rows: Vec<(String, Option<i64>, i64)> = sqlx::query_as(
                    "SELECT s.conv_id, s.seq, s.since_ms
                     FROM (SELECT conv_id, seq, 0 AS since_ms FROM message_media WHERE media_id = $1
                           UNION
                           SELECT conv_id, seq, CASE WHEN seq IS NULL THEN min(made_at_ms) ELSE 0 END FROM media_claims
                           WHERE media_id = $1 AND until_ms > $3 GROUP BY conv_id, seq) AS s
                     LEFT JOIN members AS m ON m.conv_id = s.conv_id AND m.user_id = $2
                     ORDER BY m.user_id IS NOT NULL AND m.left_rev IS NULL DESC, s.seq IS NOT NULL DESC, s.conv_id, s.seq DESC
                     LIMIT $4",
                )
                .bind(id)
                .bind(reader.as_str())
                .bind(now)
                .bind(stored(limit)?)
                .fetch_all(connection)
                .await?;
                let mut shown: Vec<Shown> = Vec::new();
                for (conversation, seq, since) in rows {
                    let conversation = read_conversation(&conversation)?;
                    match (seq, shown.last_mut()) {
                        (Some(seq), Some(Shown::On(last, seqs))) if *last == conversation => seqs.push(read(seq)?),
                        (Some(seq), _) => shown.push(Shown::On(conversation, vec![read(seq)?])),
                        (None, _) => shown.push(Shown::Claimed(conversation, since)),
                    }
                }
                Ok(shown)
            })
        })
        .await
    }

    /// Looks at up to `limit` pictures whose time has come: what is used is left alone, what is found unused for the second time is marked to
    /// be swept, and so is what was not removed since the last look. Claims that ended are forgotten. Safe to run twice at once.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn check_media(&self, now: Millis, again_at: Millis, limit: u64) -> Result<Checked, ArchiveError> {
        self.unit("check_media", move |connection| {
            Box::pin(async move {
                let mut tx = connection.begin().await?;
                // Who claims a picture now waits until this ends, and whom another sweeper has is passed over.
                let ids: Vec<(Uuid,)> =
                    sqlx::query_as("SELECT id FROM media WHERE check_at_ms <= $1 ORDER BY check_at_ms LIMIT $2 FOR UPDATE SKIP LOCKED")
                        .bind(now)
                        .bind(stored(limit)?)
                        .fetch_all(&mut *tx)
                        .await?;
                let ids: Vec<Uuid> = ids.into_iter().map(|(id,)| id).collect();
                if ids.is_empty() {
                    tx.commit().await?;
                    return Ok(Checked::default());
                }
                let swept = decide(&mut tx, &ids, now, again_at).await?;
                sqlx::query("DELETE FROM media_claims WHERE media_id = ANY($1) AND until_ms <= $2")
                    .bind(&ids)
                    .bind(now)
                    .execute(&mut *tx)
                    .await?;
                tx.commit().await?;
                Ok(Checked { checked: ids.len(), sweeping: swept })
            })
        })
        .await
    }

    /// Forgets pictures whose bytes are removed. Safe to repeat.
    ///
    /// # Errors
    /// When the archive does not answer.
    pub async fn forget_media(&self, ids: &[Uuid]) -> Result<u64, ArchiveError> {
        let ids = ids.to_vec();
        self.unit("forget_media", move |connection| {
            let ids = ids.clone();
            Box::pin(async move {
                let done = sqlx::query("DELETE FROM media WHERE id = ANY($1) AND state = 'sweeping'").bind(ids).execute(connection).await?;
                Ok(done.rows_affected())
            })
        })
        .await
    }
}

/// Gives each of these locked pictures its next state, and names those to be swept.
async fn decide(tx: &mut PgConnection, ids: &[Uuid], now: Millis, again_at: Millis) -> Result<Vec<Uuid>, Fault> {
    let swept: Vec<(Uuid,)> = sqlx::query_as(
        "WITH found AS (
             SELECT m.id, m.state, m.doomed,
                    EXISTS (SELECT 1 FROM message_media AS r WHERE r.media_id = m.id) AS shown,
                    (SELECT max(c.until_ms) FROM media_claims AS c WHERE c.media_id = m.id AND c.until_ms > $2) AS claimed_until
             FROM media AS m WHERE m.id = ANY($1)
         ), decided AS (
             UPDATE media AS m
             SET state = CASE WHEN f.state = 'ready' AND (f.shown OR f.claimed_until IS NOT NULL OR NOT f.doomed) THEN m.state ELSE 'sweeping' END,
                 doomed = NOT f.shown AND f.claimed_until IS NULL,
                 check_at_ms = CASE WHEN f.state = 'ready' AND f.shown THEN NULL
                                    WHEN f.state = 'ready' AND f.claimed_until IS NOT NULL THEN f.claimed_until
                                    ELSE $3 END
             FROM found AS f WHERE m.id = f.id
             RETURNING m.id, m.state
         )
         SELECT id FROM decided WHERE state = 'sweeping'",
    )
    .bind(ids)
    .bind(now)
    .bind(again_at)
    .fetch_all(tx)
    .await?;
    Ok(swept.into_iter().map(|(id,)| id).collect())
}

//! Sweeping: what nothing shows goes, what something shows or is about to show stays, and half-done work is found again.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use seqline::actions::Stores;
use seqline::actions::claim_media::claim_media;
use seqline::actions::store_media::begin_upload;
use seqline::actions::sweep_media::{Swept, sweep_media};
use seqline::domain::ids::{ConversationId, UserId};
use seqline::domain::media::{Media, MediaType, Picture};
use seqline::domain::refusal::Refusal;
use seqline::postgres::ClaimFor;
use tempfile::TempDir;
use uuid::Uuid;

use crate::harness::pictures::{files, folder_url, picture};
use crate::harness::{PrivateRedis, RedisKind, TestDatabase, stores};

const HOUR_MS: i64 = 3_600_000;

/// Stores whose clocks stand at different hours, and a folder of pictures that they share.
struct Hours {
    redis: PrivateRedis,
    database: TestDatabase,
    folder: TempDir,
}

impl Hours {
    async fn new() -> Self {
        let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
        Self { redis, database, folder: tempfile::tempdir().unwrap() }
    }

    /// Stores so many minutes from now.
    async fn after(&self, minutes: i64) -> Arc<Stores> {
        // A day is as far as a clock may be set; unused pictures are kept for ten hours here.
        let (offset, url) = ((minutes * 60_000).to_string(), folder_url(self.folder.path()));
        let flags = ["--clock-offset-ms", &offset, "--media-url", &url, "--media-unused-age", "36000"];
        stores::open(&self.redis.url(), self.database.url(), &flags).await
    }

    async fn states(&self) -> Vec<(Uuid, String)> {
        sqlx::query_as("SELECT id, state FROM media ORDER BY id").fetch_all(&mut self.database.connect().await).await.unwrap()
    }

    async fn run(&self, statement: &'static str, id: Uuid) {
        sqlx::query(statement).bind(id).execute(&mut self.database.connect().await).await.unwrap();
    }
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

async fn upload(stores: &Arc<Stores>) -> Uuid {
    let mut upload = begin_upload(stores, &user("ann"), MediaType::Png).unwrap();
    upload.push(&picture("image/png", 8, 8)).unwrap();
    upload.finish().await.unwrap().id
}

fn claim_for(message: Uuid) -> ClaimFor {
    ClaimFor { conversation: ConversationId::of_system("x").unwrap(), message, seq: None }
}

async fn claim(stores: &Arc<Stores>, id: Uuid) -> Result<(), Refusal> {
    claim_media(stores, &user("ann"), &[id], Some(claim_for(Uuid::now_v7()))).await.map(drop)
}

async fn sweep(stores: &Arc<Stores>) -> u64 {
    sweep_media(stores).await.unwrap().removed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nothing_shows_goes_and_the_rest_stays() {
    let hours = Hours::new().await;
    let (now, later, still_later, last) = (hours.after(0).await, hours.after(601).await, hours.after(660).await, hours.after(1_440).await);
    let (unused, claimed, shown) = (upload(&now).await, upload(&now).await, upload(&now).await);
    // Begun and never finished; and one whose object was not removed when its row had been marked.
    let (begun, marked) = (Uuid::now_v7(), upload(&now).await);
    let half = Media { id: begun, owner: user("ann"), picture: Picture { kind: MediaType::Png, width: 1, height: 1 }, size: 1 };
    let at = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    now.archive.begin_media(&half, at, at + 10 * HOUR_MS).await.unwrap();
    now.media.as_ref().unwrap().objects.write(begun, vec![1].into()).await.unwrap();
    hours.run("UPDATE media SET state = 'sweeping' WHERE id = $1", marked).await;
    hours.run("INSERT INTO message_media (conv_id, seq, media_id) VALUES ('system:x', 1, $1)", shown).await;
    assert_eq!(files(hours.folder.path()), 5);

    assert_eq!(sweep(&now).await, 0);
    // Claimed after nine hours, for ten.
    claim(&hours.after(540).await, claimed).await.unwrap();
    // After ten hours what was half done goes; what is unused was seen so once.
    assert_eq!(sweep(&later).await, 2);
    assert_eq!(sweep(&later).await, 0);
    assert_eq!(files(hours.folder.path()), 3);
    // Half an hour later it goes, whoever looks and how many at once.
    let (one, two) = tokio::join!(sweep(&still_later), sweep(&still_later));
    assert_eq!(one + two, 1);
    assert_eq!(hours.states().await.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [claimed, shown]);
    assert!(matches!(claim(&still_later, unused).await, Err(Refusal::Invalid(error)) if error.field == "media[0]"));
    // The claim ends after nineteen hours; what it was for never came.
    assert_eq!(sweep(&hours.after(1_141).await).await, 0);
    assert_eq!(sweep(&last).await, 1);
    assert_eq!(hours.states().await, [(shown, "ready".to_owned())]);
    // What is in use is not looked at again.
    assert_eq!(sweep_media(&last).await.unwrap(), Swept::default());
    assert_eq!(files(hours.folder.path()), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_and_a_sweep_do_not_cross() {
    let hours = Hours::new().await;
    let (now, sweeper, claimer) = (hours.after(0).await, hours.after(700).await, hours.after(700).await);
    for round in 0..30 {
        let id = upload(&now).await;
        hours.run("UPDATE media SET doomed = true WHERE id = $1", id).await;
        let (claimed, swept) = tokio::join!(claim(&claimer, id), sweep_media(&sweeper));
        let kept = hours.states().await.iter().any(|(known, state)| *known == id && state == "ready");
        assert_eq!(claimed.is_ok(), kept, "round {round}: {claimed:?} {swept:?}");
        hours.run("DELETE FROM media_claims WHERE media_id = $1", id).await;
        hours.run("DELETE FROM media WHERE id = $1", id).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_all_or_none_and_only_of_ones_own() {
    let hours = Hours::new().await;
    let now = hours.after(0).await;
    let (one, two) = (upload(&now).await, upload(&now).await);
    let message = Uuid::now_v7();
    let claims = async || {
        let count: (i64,) =
            sqlx::query_as("SELECT count(*) FROM media_claims").fetch_one(&mut hours.database.connect().await).await.unwrap();
        count.0
    };
    for (owner, ids, field) in [("ann", vec![one, Uuid::now_v7()], "media[1]"), ("eve", vec![one], "media[0]")] {
        let refused = claim_media(&now, &user(owner), &ids, Some(claim_for(message))).await;
        assert!(matches!(refused, Err(Refusal::Invalid(error)) if error.field == field));
    }
    assert_eq!(claims().await, 0);
    for _ in 0..2 {
        let items = claim_media(&now, &user("ann"), &[two, one], Some(claim_for(message))).await.unwrap();
        assert_eq!(items.iter().map(|item| item.id).collect::<Vec<_>>(), [two, one]);
        assert_eq!(claims().await, 2);
    }
}

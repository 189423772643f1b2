//! The page for phones does what it says: its lines of curl are pasted, and its example in Python sleeps, wakes, loses its line and its place.

use std::path::{Path, PathBuf};

use seqline::embedded::TempFolder;
use serde_json::Value;
use tokio::process::Command;

use crate::harness::fleet::PATIENCE;
use crate::harness::proxy::{Proxy, When};
use crate::harness::{Fleet, RedisKind, User, eventually};

/// A phone: a file, a token, and the address it knows.
struct Phone {
    file: PathBuf,
    token: String,
    api: String,
}

/// What one run of it said.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    events: Vec<Value>,
    fault: String,
}

impl Run {
    /// Types of what was told, in order.
    fn types(&self) -> Vec<&str> {
        self.events.iter().map(|event| event["type"].as_str().unwrap()).collect()
    }

    /// Bodies of messages that were told, or shown.
    fn bodies(&self) -> Vec<&str> {
        self.events.iter().filter_map(|e| e["data"]["message"]["body"].as_str().or(e["body"].as_str())).collect()
    }
}

impl Phone {
    fn new(folder: &Path, user: &User, api: &str) -> Self {
        Self { file: folder.join(format!("{}.db", user.id)), token: user.token.clone(), api: api.to_owned() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("python3");
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/phones/phone.py"));
        command.args(["--api", &self.api, "--file"]).arg(&self.file).args(words);
        command.env("SEQLINE_TOKEN", &self.token).env("PYTHONDONTWRITEBYTECODE", "1").kill_on_drop(true);
        command
    }

    async fn run(&self, words: &[&str]) -> Run {
        let ran = tokio::time::timeout(PATIENCE, self.command(words).output()).await.expect("it ends").unwrap();
        let events = String::from_utf8(ran.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Run { code: ran.status.code(), events, fault: String::from_utf8(ran.stderr).unwrap() }
    }

    /// The same, and it must go well.
    async fn done(&self, words: &[&str]) -> Run {
        let run = self.run(words).await;
        assert_eq!(run.code, Some(0), "{words:?}: {run:?}");
        run
    }

    async fn holds(&self, conversation: &str) -> Vec<Value> {
        self.done(&["show", conversation]).await.events
    }
}

fn port_of(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_phone_that_sleeps_wakes_and_loses_its_line_has_everything_once() {
    let mut fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let folder = TempFolder::new("phones").unwrap();
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let group = fleet.client(0, &ann).create_group("Trip", &["bob"]).await;
    fleet.client(0, &ann).send(&group, "before", "before the phone").await.expect(201);

    // A phone that is new reads what there is, and then only what comes.
    let line = Proxy::before(port_of(&fleet.url(1))).await;
    let phone = Phone::new(folder.path(), &bob, &format!("http://127.0.0.1:{}", line.port));
    phone.done(&["wake"]).await;
    fleet.client(0, &ann).send(&group, "asleep", "while it sleeps").await.expect(201);
    let woken = phone.done(&["wake", "--wait", "30"]).await;
    assert_eq!(woken.bodies(), ["while it sleeps"], "{woken:?}");
    assert_eq!(phone.done(&["wake"]).await.types(), [""; 0], "nothing is told twice");

    // The answer is lost on its way: the message waits with its key, and is there once.
    line.arm(b"/messages HTTP", &[When::After]);
    let sent = phone.run(&["send", &group, "one"]).await;
    assert_eq!((sent.code, sent.types().len()), (Some(3), 0), "{sent:?}");
    // The line is dead: two more wait, in their order.
    line.cut();
    for text in ["two", "three"] {
        let sent = phone.run(&["send", &group, text]).await;
        assert_eq!(sent.code, Some(3), "{sent:?}");
        assert!(sent.fault.contains("no answer"), "{sent:?}");
    }
    line.restore();
    let woken = phone.done(&["wake"]).await;
    assert_eq!(woken.types().iter().filter(|kind| **kind == "phone.sent").count(), 3, "{woken:?}");
    let history = fleet.client(0, &ann).whole_history(&group).await;
    let bodies: Vec<&str> = history.iter().map(|message| message["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["before the phone", "while it sleeps", "one", "two", "three"]);

    // What will never be taken is named, kept for its writer, and holds nothing up.
    let refused = phone.run(&["send", "group:01890000-0000-7000-8000-000000000000", "to nobody"]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(refused.types(), ["phone.refused"], "{refused:?}");

    // The app is open while its gateway goes: the next line goes on from the same place, at the other gateway.
    phone.done(&["wake"]).await;
    let heard = folder.path().join("heard");
    let out = std::fs::File::create(&heard).unwrap();
    let mut open = phone.command(&["listen"]).stdout(out).spawn().unwrap();
    let hears = async |text: &str| {
        eventually(&format!("the phone hears {text}"), PATIENCE, async || std::fs::read_to_string(&heard).unwrap().contains(text)).await;
    };
    hears("\"hello\"").await;
    fleet.client(0, &ann).send(&group, "open-1", "it is open").await.expect(201);
    hears("it is open").await;
    line.cut();
    fleet.stop_gateway(1).await;
    fleet.client(0, &ann).send(&group, "open-2", "its gateway is gone").await.expect(201);
    line.lead_to(port_of(&fleet.url(0)));
    line.restore();
    hears("its gateway is gone").await;
    fleet.client(0, &ann).delete(&format!("/v1/conversations/{group}/messages/2")).await.expect(200);
    hears("message.deleted").await;
    open.kill().await.unwrap();

    assert_eq!(phone.holds(&group).await, fleet.client(0, &bob).whole_history(&group).await);
    let said = std::fs::read_to_string(&heard).unwrap();
    for text in ["it is open", "its gateway is gone"] {
        assert_eq!(said.matches(text).count(), 1, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_phone_that_slept_for_longer_than_the_log_keeps_recovers_all() {
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--log-max-entries", "10"]).await;
    let folder = TempFolder::new("phones").unwrap();
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let (busy, quiet) =
        (fleet.client(0, &ann).create_group("Busy", &["bob"]).await, fleet.client(1, &ann).create_group("Quiet", &["bob"]).await);
    fleet.client(0, &ann).send(&quiet, "q", "nothing happens here").await.expect(201);
    fleet.client(0, &ann).send(&busy, "first", "to be changed").await.expect(201);
    let phone = Phone::new(folder.path(), &bob, &fleet.url(0));
    phone.done(&["wake"]).await;

    let mut told = fleet.client(0, &ann).stream().open().await;
    told.wait_for("hello", PATIENCE).await;
    for n in 0..150 {
        fleet.client(n, &ann).send(&busy, &format!("m-{n}"), &format!("message {n}")).await.expect(201);
    }
    let edit = serde_json::json!({"body": "changed"});
    fleet.client(0, &ann).patch(&format!("/v1/conversations/{busy}/messages/1"), &edit).await.expect(200);
    told.wait_for("message.edited", PATIENCE).await;
    let woken = phone.done(&["wake"]).await;
    assert!(woken.types().contains(&"phone.recovered"), "{woken:?}");
    for conversation in [&busy, &quiet] {
        assert_eq!(phone.holds(conversation).await, fleet.client(0, &bob).whole_history(conversation).await);
    }
    fleet.client(1, &ann).send(&busy, "last", "after it").await.expect(201);
    assert_eq!(phone.done(&["wake", "--wait", "30"]).await.bodies(), ["after it"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lines_of_curl_wake_a_phone() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let folder = TempFolder::new("phones").unwrap();
    let page = include_str!("../../deploy/phones/README.md");
    let block = page.split("<!-- curl:begin -->\n```sh\n").nth(1).unwrap().split("```\n<!-- curl:end -->").next().unwrap();
    let ran = Command::new("sh")
        .args(["-e", "-c", block])
        .current_dir(folder.path())
        .env("API", fleet.url(0))
        .env("ANN", User::new("ann").token)
        .env("BOB", User::new("bob").token)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let woken = std::fs::read_to_string(folder.path().join("woken.json")).unwrap();
    let woken: Value = serde_json::from_str(&woken).unwrap();
    assert_eq!(woken["resync"], Value::Null, "{said}");
    assert!(said.contains("event: hello"), "{said}");
    assert_eq!(said.matches("\"type\":\"message.created\"").count(), 1, "polled or streamed, once: {said}");
}

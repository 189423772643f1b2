//! `seqline dev` as a newcomer uses it: what it prints works when pasted, and so does the walk of the README; Ctrl-C ends it, the data are
//! there again, also after a kill.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use seqline::embedded::{TempFolder, free_port};
use serde_json::Value;

use crate::harness::pictures::{files, picture};

/// A start makes a database, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// A running `seqline dev`; killed when dropped.
struct Dev {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Dev {
    fn start(folder: &Path, port: u16) -> Self {
        let (out, err) = (folder.join("out"), folder.join("err"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_seqline"));
        command.args(["dev", "--data"]).arg(folder.join("data")).args(["--port", &port.to_string()]).stdin(Stdio::null());
        command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        let mut dev = Self { child: command.spawn().unwrap(), out, err };
        let begun = Instant::now();
        while !dev.printed().ends_with("limit=50'\n\n") {
            assert!(dev.child.try_wait().unwrap().is_none() && begun.elapsed() < PATIENCE, "{}", dev.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        dev
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// The `curl` lines in the order they are printed: listen, send, history.
    fn lines(&self) -> Vec<String> {
        self.printed().lines().filter(|line| line.starts_with("curl ")).map(str::to_owned).collect()
    }

    fn end(mut self, signal: &str) -> std::process::ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("sh").args(["-c", "kill -s $1 $2", "sh", signal, &pid]).status().unwrap().success());
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pastes a line into a shell and gives what it prints.
fn paste(line: &str) -> String {
    String::from_utf8(Command::new("sh").args(["-c", line]).output().unwrap().stdout).unwrap()
}

fn bodies(history: &str) -> Vec<String> {
    let page: Value = serde_json::from_str(history).unwrap_or_else(|error| panic!("{error}: {history}"));
    page["items"].as_array().unwrap().iter().map(|message| message["body"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_dev_prints_works_and_the_next_start_finds_the_data() {
    let folder = TempFolder::new("dev").unwrap();
    let dev = Dev::start(folder.path(), free_port().unwrap());
    let (listen, send, history) = (dev.lines()[0].clone(), dev.lines()[1].clone(), dev.lines()[2].clone());
    let heard = folder.path().join("heard");
    let mut listener =
        Command::new("sh").args(["-c", &format!("exec {listen}")]).stdout(fs::File::create(&heard).unwrap()).spawn().unwrap();
    let wait_for = |word: &str| {
        let begun = Instant::now();
        while !fs::read_to_string(&heard).unwrap().contains(word) {
            assert!(begun.elapsed() < PATIENCE, "no {word} in {}", fs::read_to_string(&heard).unwrap());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait_for("event: hello");
    let first = paste(&send);
    assert!(first.contains("\"seq\":1"), "{first}");
    assert_eq!(paste(&send), first, "the same key is the same message");
    wait_for("Hello Bob");
    // Pictures have a place, too.
    let shot = folder.path().join("shot.png");
    fs::write(&shot, picture("image/png", 8, 8)).unwrap();
    let (auth, url) = (send.split("-H '").nth(1).and_then(|rest| rest.split('\'').next()).unwrap(), send.rsplit(' ').next().unwrap());
    let media = format!("{}/v1/media", url.split("/v1/").next().unwrap());
    let taken = paste(&format!("curl -sS -H '{auth}' -H 'Content-Type: image/png' --data-binary '@{}' {media}", shot.display()));
    let taken: Value = serde_json::from_str(&taken).unwrap_or_else(|error| panic!("{error}: {taken}"));
    let kept = folder.path().join("data/media");
    assert_eq!((taken["mime_type"].as_str(), files(&kept)), (Some("image/png"), 1), "{taken}");
    assert_eq!(bodies(&paste(&history)), ["Hello Bob"]);
    assert!(dev.end("INT").success());
    listener.wait().unwrap();

    // Other tokens, other client_id, same people, same data. The old token holds, because the secret was kept.
    let port = free_port().unwrap();
    let dev = Dev::start(folder.path(), port);
    assert_eq!(bodies(&paste(&dev.lines()[2])), ["Hello Bob"]);
    let second = paste(&dev.lines()[1]);
    assert!(second.contains("\"seq\":2"), "a clean stop leaves no void: {second}");
    dev.end("KILL");

    // Killed while everything ran, and started again at once.
    let dev = Dev::start(folder.path(), port);
    assert_eq!(bodies(&paste(&dev.lines()[2])), ["Hello Bob", "Hello Bob"]);
    assert!(paste(&dev.lines()[1]).contains("Hello Bob"));
    assert!(dev.end("TERM").success());
}

#[test]
fn a_taken_port_makes_way_and_a_second_dev_is_refused() {
    let folder = TempFolder::new("dev").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    if port > 65_000 {
        return;
    }
    let dev = Dev::start(folder.path(), port);
    assert!(dev.said().contains(&format!("Port {port} is taken")), "{}", dev.said());
    let mut second = Command::new(env!("CARGO_BIN_EXE_seqline"));
    let refused = second.args(["dev", "--data"]).arg(folder.path().join("data")).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&dev.child.id().to_string()), "{said}");
}

/// The README's walk, with the addresses and folders of this run.
fn walk(port: u16, data: &Path) -> String {
    let readme = include_str!("../../README.md");
    let block = readme.split("<!-- walk:begin -->\n```sh\n").nth(1).unwrap().split("```\n<!-- walk:end -->").next().unwrap();
    block
        .replace("http://127.0.0.1:8080", &format!("http://127.0.0.1:{port}"))
        .replace(".seqline/", &format!("{}/", data.display()))
        .replace("target/release/seqline", env!("CARGO_BIN_EXE_seqline"))
}

#[test]
fn the_walk_of_the_readme_shows_what_it_says() {
    let folder = TempFolder::new("dev").unwrap();
    let dev = Dev::start(folder.path(), free_port().unwrap());
    let url = dev.printed().lines().find_map(|line| line.strip_prefix("  API ").map(str::trim).map(str::to_owned)).unwrap();
    let port = url.split(' ').next().unwrap().rsplit(':').next().unwrap().parse().unwrap();
    let script = walk(port, &folder.path().join("data"));
    let ran = Command::new("timeout").args(["90", "sh", "-e", "-c", &script]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{said}\n{}\n{}", String::from_utf8_lossy(&ran.stderr), dev.said());
    let answers: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let [picture, answer, again, recalled, history] = answers.as_slice() else { panic!("{said}") };
    assert_eq!((&picture["seq"], &picture["media"][0]["mime_type"]), (&1.into(), &"image/png".into()), "{said}");
    assert_eq!((&answer["seq"], &answer["reply_to"]["deleted"]), (&2.into(), &false.into()), "{said}");
    assert_eq!(again, answer);
    assert_eq!((&recalled["body"], &recalled["deleted_by"]), (&"".into(), &"ann".into()), "{said}");
    assert_eq!(history["items"][1]["reply_to"]["deleted"], true, "{said}");
    let heard: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(heard, ["hello", "conversation.created", "message.created", "message.created", "message.deleted"], "{said}");
}

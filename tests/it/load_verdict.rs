//! `seqline load` tells a good run from each kind of bad one.

use clap::Parser;
use seqline::commands::load::{LoadArgs, Report, execute};

use crate::faulty_gateway::{Fault, start};
use crate::harness::user::SECRET;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    load: LoadArgs,
}

/// Runs `load <words>` against these gateways.
pub async fn load(urls: &[&str], words: &str) -> Report {
    let urls = urls.iter().flat_map(|url| ["--url", url]);
    let args = Line::try_parse_from(["load"].into_iter().chain(words.split_whitespace()).chain(urls).chain(["--secret", SECRET])).unwrap();
    execute(&args.load).await.unwrap()
}

/// The same against one gateway with this fault, reached under two URLs.
async fn run(fault: Fault, words: &str) -> Report {
    let url = start(fault).await;
    load(&[&url, &url], &format!("{words} --drain-seconds 2")).await
}

const EVENING: &str = "evening-peak --members 5 --per-minute 3000 --seconds 1";
const RESUME: &str = "resume --readers 3 --rate 100 --seconds 3";

/// Expects exactly these counts of lost, doubled, out of order and late.
fn check(report: &Report, expected: [u64; 4]) {
    let v = &report.verdict;
    assert_eq!([v.lost, v.doubled, v.out_of_order, v.late], expected, "{report}");
    assert_eq!(v.good, expected == [0; 4], "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_evening_is_good() {
    let report = run(Fault::None, EVENING).await;
    check(&report, [0; 4]);
    assert_eq!((report.taken, report.deliveries), (50, 250));
    assert_eq!((report.send.count, report.deliver.count), (50, 250));
    assert!(report.send.p50_ms > 0.0 && report.send.max_ms >= report.send.p99_ms);
    let text = report.to_string();
    assert!(text.contains("verdict     good") && text.contains("5 streaming, over 2 gateways"), "{text}");
    assert_eq!(serde_json::to_value(&report).unwrap()["verdict"]["good"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hiccups_within_the_contract_are_ridden_out_with_the_same_key() {
    let report = run(Fault::Hiccups, EVENING).await;
    check(&report, [0; 4]);
    assert!(report.retries > 0 && report.replayed > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_stream_is_named() {
    check(&run(Fault::LosesOne, EVENING).await, [1, 0, 0, 0]);
    check(&run(Fault::DoublesOne, EVENING).await, [0, 1, 0, 0]);
    check(&run(Fault::SwapsTwo, EVENING).await, [0, 0, 1, 0]);
    let late = run(Fault::StandsStill, &format!("{EVENING} --late-ms 300")).await;
    let v = &late.verdict;
    assert!(v.late > 0 && !v.good && v.lost + v.doubled + v.out_of_order == 0, "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_the_numbers_is_named() {
    check(&run(Fault::SkipsNumber, EVENING).await, [1, 0, 0, 0]);
    check(&run(Fault::VoidsNumber, EVENING).await, [0; 4]);
    check(&run(Fault::HistoryForgets, EVENING).await, [1, 0, 0, 0]);
    let shared = run(Fault::SharesNumber, EVENING).await;
    assert!(shared.verdict.doubled > 0 && !shared.verdict.good, "{shared}");
    let forgets = run(Fault::ForgetsKeys, EVENING).await;
    assert!(forgets.verdict.doubled > 0 && !forgets.verdict.good, "{forgets}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_who_comes_and_goes_is_judged_like_one_who_stays() {
    let good = run(Fault::None, RESUME).await;
    check(&good, [0; 4]);
    assert!(good.streams.opened > 30, "{good}");
    let late = run(Fault::ResumesTooLate, RESUME).await;
    assert!(late.verdict.lost > 0 && !late.verdict.good, "{late}");
    let early = run(Fault::ResumesTooEarly, RESUME).await;
    assert!(early.verdict.doubled > 0 && !early.verdict.good, "{early}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resync_is_followed_and_reported_and_no_loss() {
    let report = run(Fault::Resyncs, EVENING).await;
    check(&report, [0; 4]);
    assert_eq!(report.streams.resyncs.get("trimmed"), Some(&1), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_in_which_nothing_is_taken_is_not_good() {
    let report = run(Fault::Refuses, "pairs --pairs 2 --rate 10 --seconds 1").await;
    assert!(!report.verdict.good && report.verdict.unsent == 10, "{report}");
    assert!(report.to_string().contains("403 forbidden"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_are_played_at_a_rate_and_in_a_closed_loop() {
    let paced = run(Fault::None, "pairs --pairs 10 --rate 100 --seconds 1").await;
    check(&paced, [0; 4]);
    assert_eq!((paced.taken, paced.deliveries, paced.conversations), (100, 200, 10));
    let closed = run(Fault::None, "pairs --pairs 10 --clients 3 --seconds 1 --streaming 4").await;
    check(&closed, [0; 4]);
    assert!(closed.taken > 50 && closed.streams.readers == 4, "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_streams_are_held_weighed_and_found_awake() {
    let own = std::process::id();
    let report = run(Fault::None, &format!("idle --streams 40 --seconds 1 --pid {own}")).await;
    check(&report, [0; 4]);
    assert_eq!((report.streams.readers, report.taken, report.deliveries), (40, 20, 40));
    assert!(report.memory.is_some(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_is_replayed_in_order_of_time() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let lines = [
        r#"{"n": 3, "at": "2008-04-27T04:47:30Z", "sender": "ann", "body": "third", "reply_to_n": 2}"#,
        r#"{"n": 2, "at": "2008-04-27T04:46:01Z", "sender": "bob", "body": "second"}"#,
        r#"{"n": 1, "at": "2008-04-27T04:46:01Z", "sender": "ann", "body": "first"}"#,
    ];
    std::fs::write(file.path(), lines.join("\n")).unwrap();
    let report = run(Fault::None, &format!("--from {} --speedup 100", file.path().display())).await;
    check(&report, [0; 4]);
    assert_eq!((report.users, report.taken, report.deliveries), (2, 3, 6));
    assert!((0.8..2.0).contains(&report.seconds), "89 seconds, a hundred times faster: {report}");
}

#[tokio::test]
async fn what_does_not_go_together_is_refused_by_name() {
    let url = "http://127.0.0.1:1";
    for (words, part) in [
        ("idle --speedup 2", "--speedup"),
        ("evening-peak --pairs 3", "--pairs"),
        ("evening-peak --members 1", "--members"),
        ("evening-peak --members 10 --streaming 11", "--streaming"),
        ("pairs --rate 1000000", "--rate"),
        ("pairs --rate 100000 --seconds 86400", "messages"),
    ] {
        let line = format!("load {words} --url {url}");
        let args = Line::try_parse_from(line.split_whitespace().chain(["--secret", SECRET])).unwrap();
        let err = execute(&args.load).await.unwrap_err().to_string();
        assert!(err.contains(part), "{words}: {err}");
    }
    for words in ["", "evening-peak --from x", "nonsense", "pairs --clients 3 --rate 2", "pairs --seconds 0"] {
        let line = format!("load {words} --url {url} --secret {}", SECRET.replace(' ', "-"));
        assert!(Line::try_parse_from(line.split_whitespace()).is_err(), "{words}");
    }
}

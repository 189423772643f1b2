//! What dashboards and alerts ask for is what `/metrics` shows: a panel that is empty because of a typing error looks like calm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use seqline::metrics::{Kind, Values, rows};
use yaml_rust2::{Yaml, YamlLoader};

use crate::harness::{PrivateRedis, Process, RedisKind, TestDatabase, eventually};
use crate::load_verdict::load;

const DASHBOARD: &str = include_str!("../../dashboards/seqline.json");
const ALERTS: &str = include_str!("../../dashboards/alerts.yaml");

fn dashboard() -> serde_json::Value {
    serde_json::from_str(DASHBOARD).unwrap()
}

fn panels(dashboard: &serde_json::Value) -> &Vec<serde_json::Value> {
    dashboard["panels"].as_array().unwrap()
}

fn alerts() -> Vec<Yaml> {
    let file = YamlLoader::load_from_str(ALERTS).unwrap().remove(0);
    let groups = file["groups"].as_vec().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_vec().unwrap().clone()).collect()
}

/// Every query, with where it stands.
fn queries() -> Vec<(String, String)> {
    let dashboard = dashboard();
    let mut queries = Vec::new();
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((panel["title"].as_str().unwrap().to_owned(), target["expr"].as_str().unwrap().to_owned()));
        }
    }
    for rule in alerts() {
        queries.push((rule["alert"].as_str().unwrap().to_owned(), rule["expr"].as_str().unwrap().to_owned()));
    }
    assert!(queries.len() > 50, "the queries were not found");
    queries
}

/// The names in a query that begin with `seqline_`.
fn names(query: &str) -> BTreeSet<String> {
    query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("seqline_")).map(str::to_owned).collect()
}

/// Every name that `/metrics` can show, with its labels.
fn shown() -> BTreeMap<String, Vec<&'static str>> {
    let mut names = BTreeMap::new();
    for row in rows() {
        let labels = match row.values {
            Values::None => vec![],
            Values::Closed(label, _) => vec![label],
            Values::Open(labels) => labels.to_vec(),
        };
        match row.kind {
            Kind::Histogram(_) => {
                for end in ["bucket", "sum", "count"] {
                    names.insert(format!("{}_{end}", row.name), labels.clone());
                }
            }
            Kind::Counter | Kind::Gauge => {
                names.insert(row.name.to_owned(), labels);
            }
        }
    }
    names
}

#[test]
fn every_name_asked_for_is_one_of_the_table() {
    let shown = shown();
    for (place, query) in queries() {
        for name in names(&query) {
            assert!(shown.contains_key(&name), "{place}: {name} is not in src/metrics.rs");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_asked_for_is_on_a_live_metrics_page() {
    let redis = PrivateRedis::start(RedisKind::Single).await;
    let database = TestDatabase::migrated().await;
    let mut processes = [["serve"], ["work"]].map(|words| Process::start(&words, &redis.url(), database.url(), &[]));
    for process in &mut processes {
        process.wait_ready().await;
    }
    // A chat, so that every script, route and shard that appears only in use has been in use.
    let report = load(&[&processes[0].url()], "evening-peak --members 4 --per-minute 1200 --seconds 2").await;
    assert!(report.verdict.good, "{report}");
    let asked: BTreeSet<String> = queries().iter().flat_map(|(_, query)| names(query)).collect();
    eventually("all names are shown", Duration::from_secs(30), async || {
        let mut shown = BTreeSet::new();
        for process in &processes {
            let text = process.metrics().await;
            shown.extend(text.lines().filter_map(|line| Some(line.split(['{', ' ']).next()?.to_owned())));
        }
        let missing: Vec<_> = asked.difference(&shown).collect();
        if !missing.is_empty() {
            eprintln!("not shown: {missing:?}");
        }
        missing.is_empty()
    })
    .await;
}

#[test]
fn every_metric_has_a_panel() {
    let dashboard = dashboard();
    let targets = panels(&dashboard).iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let asked: BTreeSet<String> = targets.flat_map(|target| names(target["expr"].as_str().unwrap())).collect();
    for row in rows() {
        let found = asked.iter().any(|name| name == row.name || name.strip_prefix(row.name).is_some_and(|end| end == "_bucket"));
        assert!(found, "{} has no panel in dashboards/seqline.json", row.name);
    }
}

#[test]
fn labels_and_their_values_are_those_of_the_table() {
    let table = rows();
    for (place, query) in queries() {
        let mut rest = query.as_str();
        // Each selector: name{label="a", label=~"a|b"}.
        while let Some(open) = rest.find('{') {
            let name: String = rest[..open].chars().rev().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let name: String = name.chars().rev().collect();
            let close = open + rest[open..].find('}').unwrap();
            let selector = &rest[open + 1..close];
            rest = &rest[close + 1..];
            if !name.starts_with("seqline_") {
                continue;
            }
            let row = table.iter().find(|row| name == row.name || name == format!("{}_bucket", row.name)).unwrap();
            for part in selector.split(',') {
                let (label, value) = part.split_once('=').unwrap();
                let value = value.trim_start_matches('~').trim_matches('"');
                let Values::Closed(expected, values) = row.values else { panic!("{place}: {name} has no closed label") };
                assert_eq!(label.trim(), expected, "{place}: {query}");
                for one in value.split('|') {
                    assert!(values.contains(&one), "{place}: {label} of {name} is never {one:?}");
                }
            }
        }
        // Each grouping: by (le, label). Prometheus itself adds instance and job.
        let labels: BTreeSet<&str> = names(&query).iter().flat_map(|name| shown()[name].clone()).chain(["le", "instance", "job"]).collect();
        for grouping in query.split("by (").skip(1) {
            for label in grouping[..grouping.find(')').unwrap()].split(',') {
                assert!(labels.contains(label.trim()), "{place}: groups by {label}, which none of its metrics has");
            }
        }
    }
}

#[test]
fn panels_lie_side_by_side_and_explain_themselves() {
    let dashboard = dashboard();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: id twice");
        let place = |part: &str| panel["gridPos"][part].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title} is too wide");
        for (x, y) in (place("x")..place("x") + place("w")).flat_map(|x| (place("y")..place("y") + place("h")).map(move |y| (x, y))) {
            assert!(cells.insert((x, y)), "{title} lies over another panel");
        }
        if panel["type"] != "row" {
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{title} has no description");
            assert_eq!(panel["datasource"]["uid"], "prometheus", "{title}");
        }
    }
}

#[test]
fn alerts_say_how_bad_and_what_to_do() {
    let mut names = BTreeSet::new();
    for rule in alerts() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("page" | "ticket")), "{name}");
        for text in ["summary", "description"] {
            assert!(rule["annotations"][text].as_str().is_some_and(|text| text.len() > 10), "{name}: {text}");
        }
        assert!(names.insert(name.clone()), "{name} twice");
    }
}

#[test]
fn whoever_is_called_finds_the_alert_on_the_page() {
    let page = include_str!("../../deploy/on-call.md");
    let table = page.split("<!-- alerts:begin -->").nth(1).unwrap().split("<!-- alerts:end -->").next().unwrap();
    let described: BTreeSet<&str> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let rules = alerts();
    let named: BTreeSet<&str> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(described, named);
}

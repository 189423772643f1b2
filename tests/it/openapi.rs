//! The OpenAPI document: it comes with the routes, and it says everything that the contract promises.

use std::collections::BTreeSet;

use reqwest::Method;
use seqline::api::router;
use seqline::contract::openapi::has_envelope;
use seqline::contract::problem::Code;
use seqline::domain::event::EventType;
use serde_json::Value;

use crate::harness::described::faults;
use crate::harness::{Fleet, RedisKind};

/// The contract's routes as far as they are built.
const PROMISED: &[(&str, &str)] = &[
    ("post", "/v1/conversations"),
    ("get", "/v1/conversations"),
    ("get", "/v1/conversations/{id}"),
    ("patch", "/v1/conversations/{id}"),
    ("get", "/v1/conversations/{id}/members"),
    ("put", "/v1/conversations/{id}/members/{user_id}"),
    ("delete", "/v1/conversations/{id}/members/{user_id}"),
    ("put", "/v1/conversations/{id}/preferences"),
    ("get", "/v1/unread"),
    ("put", "/v1/blocks/{user_id}"),
    ("delete", "/v1/blocks/{user_id}"),
    ("get", "/v1/blocks"),
    ("get", "/v1/search"),
    ("post", "/v1/conversations/{id}/messages"),
    ("get", "/v1/conversations/{id}/messages"),
    ("get", "/v1/conversations/{id}/messages/{seq}"),
    ("patch", "/v1/conversations/{id}/messages/{seq}"),
    ("delete", "/v1/conversations/{id}/messages/{seq}"),
    ("put", "/v1/conversations/{id}/messages/{seq}/reactions/{emoji}"),
    ("delete", "/v1/conversations/{id}/messages/{seq}/reactions/{emoji}"),
    ("get", "/v1/audit/conversations/{id}"),
    ("get", "/v1/audit/conversations/{id}/messages/{seq}/versions"),
    ("get", "/v1/conversations/{id}/messages/{seq}/readers"),
    ("get", "/v1/conversations/{id}/messages/by-client-id/{client_id}"),
    ("post", "/v1/conversations/{id}/read"),
    ("post", "/v1/conversations/{id}/typing"),
    ("get", "/v1/events"),
    ("post", "/v1/events/ticket"),
    ("post", "/v1/events/ack"),
    ("get", "/v1/events/poll"),
    ("post", "/v1/media"),
    ("get", "/v1/media/{id}"),
    ("get", "/v1/push/key"),
    ("put", "/v1/push/subscriptions"),
    ("delete", "/v1/push/subscriptions"),
    ("put", "/v1/users/{user_id}"),
    ("put", "/v1/shared/{type}/{id}"),
    ("delete", "/v1/shared/{type}/{id}"),
    ("get", "/v1/users/{user_id}"),
    ("delete", "/v1/users/{user_id}"),
    ("post", "/v1/import"),
    ("get", "/v1/export/conversations/{id}"),
    ("get", "/openapi.json"),
];

fn document() -> Value {
    router::document()
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, item): (&String, &Value)| {
        let methods =
            item.as_object().unwrap().iter().filter(|(name, _)| ["get", "post", "put", "patch", "delete"].contains(&name.as_str()));
        methods.map(|(method, operation)| (method.clone(), path.clone(), operation.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

#[test]
fn every_promised_route_is_in_it_and_no_other() {
    let found: BTreeSet<(String, String)> = operations(&document()).into_iter().map(|(method, path, _)| (method, path)).collect();
    let promised: BTreeSet<(String, String)> = PROMISED.iter().map(|(m, p)| ((*m).to_owned(), (*p).to_owned())).collect();
    let missing: Vec<_> = promised.difference(&found).collect();
    let surprising: Vec<_> = found.difference(&promised).collect();
    assert!(missing.is_empty() && surprising.is_empty(), "missing: {missing:?}\nsurprising: {surprising:?}");
}

#[test]
fn routes_reach_the_router_only_together_with_their_description() {
    let source = include_str!("../../src/api/router.rs");
    for way_round in [".route(", ".nest(", ".merge(", ".route_service("] {
        assert!(!source.contains(way_round), "a route added with {way_round} is not in the document");
    }
}

#[test]
fn every_operation_says_what_it_does_takes_and_answers() {
    for (method, path, operation) in operations(&document()) {
        let place = format!("{method} {path}");
        assert!(operation["summary"].as_str().or(operation["description"].as_str()).is_some_and(|s| s.len() > 8), "{place} says nothing");
        assert!(operation["tags"].as_array().is_some_and(|t| t.len() == 1), "{place} has no tag");
        assert!(operation.as_object().unwrap().values().all(|part| !part.is_null()), "{place}: {operation}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.values().all(|answer| answer.get("content").is_none_or(Value::is_object)), "{place}: {responses:?}");
        assert!(responses.keys().any(|status| status.starts_with('2')), "{place} has no good answer");
        if path != "/openapi.json" {
            assert!(responses.contains_key("default"), "{place} does not say how it refuses");
        }
        let named: BTreeSet<&str> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let described: BTreeSet<&str> = operation["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "path")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert_eq!(described, named, "{place}");
    }
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(found.len() > 10);
    for reference in found {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}

#[test]
fn codes_and_event_types_are_all_described() {
    let document = document();
    let codes = document["components"]["schemas"]["Code"]["enum"].as_array().unwrap();
    assert_eq!(codes.len(), Code::ALL.len());
    let text = document["info"]["description"].as_str().unwrap();
    for kind in EventType::ALL {
        assert!(text.contains(&format!("| `{}` |", kind.as_str())), "{}", kind.as_str());
    }
}

/// The examples of a body of one content type.
fn examples(content: &Value) -> Vec<&Value> {
    let several = content["examples"].as_object().into_iter().flatten().map(|(_, example)| &example["value"]);
    content.get("example").into_iter().chain(several).collect()
}

#[test]
fn every_json_body_has_an_example_that_fits_its_schema() {
    let mut shown = 0;
    for (method, path, operation) in operations(&document()) {
        let answers = operation["responses"].as_object().unwrap().iter().map(|(status, answer)| (status.as_str(), answer));
        for (what, body) in answers.chain([("request", &operation["requestBody"])]) {
            for (kind, content) in body["content"].as_object().into_iter().flatten().filter(|(kind, _)| kind.ends_with("json")) {
                let place = format!("{method} {path} {what} {kind}");
                let examples = examples(content);
                assert!(!examples.is_empty(), "{place} has no example");
                for example in examples {
                    let found = faults(&place, &content["schema"], example);
                    assert!(found.is_empty(), "{place}: {found:?}\n{example}\nWrite one into contract/openapi_examples.rs.");
                    shown += 1;
                }
            }
        }
    }
    assert!(shown > 40, "{shown}");
}

#[test]
fn every_event_is_described_with_its_data() {
    let document = document();
    let told = &document["paths"]["/v1/events"]["get"]["x-events"];
    assert_eq!(told.as_object().unwrap().len(), EventType::ALL.len());
    for kind in EventType::ALL {
        let name = kind.as_str();
        let (schema, example) = (&told[name]["data"], &told[name]["example"]);
        assert_eq!(faults(&format!("event {name}"), schema, example), Vec::<String>::new(), "{example}");
        assert_eq!(told[name]["id"], kind.is_kept(), "{name}");
        if !has_envelope(*kind) {
            continue;
        }
        let event = serde_json::json!({"$ref": "#/components/schemas/Event"});
        assert_eq!(faults("event", &event, example), Vec::<String>::new(), "{example}");
        for (at, what) in [("/data", "surprise"), ("", "surprise"), ("", "type")] {
            let mut changed = example.clone();
            if changed.pointer(at) == Some(&serde_json::json!({})) {
                continue;
            }
            changed.pointer_mut(at).unwrap()[what] = "nobody described this".into();
            assert!(!faults("event", &event, &changed).is_empty(), "{changed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_described_is_served() {
    let fleet = Fleet::start(RedisKind::Single, 1, 0).await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let served: Value = http.get(format!("{}/openapi.json", fleet.url(0))).send().await.unwrap().json().await.unwrap();
    assert_eq!(served, document());
    for (method, path, _) in operations(&served) {
        if path == "/openapi.json" {
            continue;
        }
        let example = path
            .replace("{id}", "group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11")
            .replace("{seq}", "1")
            .replace("{user_id}", "bob")
            .replace("{client_id}", "k");
        let request = http.request(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), format!("{}{example}", fleet.url(0)));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 401, "{method} {path} is there, and asks first who is calling");
    }
}

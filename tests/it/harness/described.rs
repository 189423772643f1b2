//! Holds what tests get against the OpenAPI document: every answer that a client is given, every event that a stream shows. What is not in the
//! document must not be answered either, so a field that nobody described fails the test that sees it, whatever that test is about.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use reqwest::Method;
use reqwest::header::HeaderMap;
use seqline::api::router;
use seqline::contract::openapi::EVENTS_EXTENSION;
use serde_json::{Value, json};

/// The document, and what was made of it so far.
struct Described {
    document: Value,
    /// Its schemas, with nothing allowed beside what they name.
    closed: Value,
    /// One for each place in the document that was needed.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

static DESCRIBED: LazyLock<Described> = LazyLock::new(|| {
    let document = router::document();
    let mut closed = document["components"].clone();
    close(&mut closed["schemas"]);
    Described { document, closed, validators: Mutex::default() }
});

/// Our own objects hold what they name and nothing else; an object that names nothing is free.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("type").is_some_and(|kind| kind == "object") && fields.get("properties").is_some_and(Value::is_object) {
                fields.entry("additionalProperties").or_insert(false.into());
            }
            fields.iter_mut().filter(|(name, _)| !matches!(name.as_str(), "examples" | "example")).for_each(|(_, inner)| close(inner));
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Most faults that are told of one body.
const TOLD_MAX: usize = 3;

/// Whether a log writer of the harness made these events, with data of its own.
fn is_made_up(text: &str) -> bool {
    text.contains(super::log_writer::MADE_UP)
}

/// Says what is wrong with `value`, if anything; `place` names the schema, which is compiled once.
pub fn faults(place: &str, schema: &Value, value: &Value) -> Vec<String> {
    let validator = {
        let mut validators = DESCRIBED.validators.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let made = validators.entry(place.to_owned()).or_insert_with(|| {
            let mut schema = schema.clone();
            close(&mut schema);
            let root =
                json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [schema], "components": DESCRIBED.closed});
            Arc::new(jsonschema::options().should_validate_formats(true).build(&root).unwrap_or_else(|error| panic!("{place}: {error}")))
        });
        Arc::clone(made)
    };
    validator.iter_errors(value).take(TOLD_MAX).map(|error| format!("{error} at '{}'", error.instance_path())).collect()
}

/// The operation that answers `method path`: of several templates that fit, the one with more words of its own.
fn operation<'a>(document: &'a Value, method: &str, path: &str) -> Option<(&'a str, &'a Value)> {
    let asked: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
    let fits = |template: &str| {
        let parts: Vec<&str> = template.split('/').collect();
        let same = |(part, text): (&&str, &&str)| if part.starts_with('{') { !text.is_empty() } else { part == text };
        parts.len() == asked.len() && parts.iter().zip(&asked).all(same)
    };
    let (template, item) = document["paths"]
        .as_object()?
        .iter()
        .filter(|(template, _)| fits(template))
        .min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(method).map(|operation| (template.as_str(), operation))
}

/// Panics when an answer is not one that the document describes.
#[track_caller]
pub fn check_answer(method: &Method, path: &str, status: u16, headers: &HeaderMap, text: &str) {
    let word = method.as_str().to_ascii_lowercase();
    let wrong = |why: &str| panic!("{method} {path} was answered as the document does not say: {why}\n{status} {headers:?}\n{text}");
    let Some((template, described)) = operation(&DESCRIBED.document, &word, path) else {
        // Addresses that nobody has, HEAD and OPTIONS.
        if (200..300).contains(&status) && !matches!(word.as_str(), "head" | "options") {
            wrong("there is no such operation");
        }
        return;
    };
    let (key, answer) = match (&described["responses"][status.to_string()], &described["responses"]["default"]) {
        (exact @ Value::Object(_), _) => (status.to_string(), exact),
        (_, other @ Value::Object(_)) if status >= 400 => ("default".to_owned(), other),
        _ => return wrong("this status is not described"),
    };
    let kind = headers.get("content-type").and_then(|value| value.to_str().ok()).and_then(|value| value.split(';').next());
    let Some(contents) = answer["content"].as_object() else {
        if !text.is_empty() {
            wrong("no body is described");
        }
        return;
    };
    let Some((kind, content)) = kind.and_then(|kind| contents.get_key_value(kind.trim())) else {
        return wrong("this content type is not described");
    };
    if !kind.ends_with("json") || is_made_up(text) {
        return;
    }
    let parts: Vec<&str> = if kind.ends_with("ndjson") { text.lines().collect() } else { vec![text] };
    for part in parts {
        let Ok(body) = serde_json::from_str::<Value>(part) else { return wrong("this is no JSON") };
        let found = faults(&format!("{word} {template} {key} {kind}"), &content["schema"], &body);
        if !found.is_empty() {
            wrong(&found.join("; "));
        }
    }
}

/// Panics when an event of a stream is not one that the document describes.
#[track_caller]
pub fn check_event(name: &str, id: Option<&str>, data: &str) {
    let wrong = |why: &str| panic!("the event '{name}' is not as the document says: {why}\nid: {id:?}\n{data}");
    let described = &DESCRIBED.document["paths"]["/v1/events"]["get"][EVENTS_EXTENSION][name];
    if !described.is_object() {
        return wrong("it is not described");
    }
    if is_made_up(data) {
        return;
    }
    let Ok(data) = serde_json::from_str::<Value>(data) else { return wrong("its data are no JSON") };
    let found = faults(&format!("event {name}"), &described["data"], &data);
    if !found.is_empty() {
        return wrong(&found.join("; "));
    }
    if id.is_some() && described["id"] == json!(false) {
        return wrong("it bears an id");
    }
    if name != "resync" && id != data["id"].as_str() {
        wrong("it has another id than its data");
    }
}

//! What the OpenAPI document says beyond routes and shapes: events with the shape of their `data`, bounds of parameters, examples. All of it is
//! worked out from the document itself, so that a route or an event that comes later is described like the others.

use serde_json::{Map, Value, json};

use super::event::{EVENT_VERSION, example_data};
use super::event_data::data_schema;
use super::openapi_examples::{CONVERSATION_ID, EVENT_ID, MOMENT, add_examples};
use crate::domain::event::EventType;
use crate::domain::ids::INTEGER_MAX;

/// Where streams are.
const STREAM_PATH: &str = "/v1/events";
/// The extension of the stream's operation that says for each event whether it bears an id, and what its `data:` is.
pub const EVENTS_EXTENSION: &str = "x-events";

/// The whole document, from the one that routes and shapes made.
#[must_use]
pub fn finish(mut document: Value) -> Value {
    describe_events(&mut document);
    bound_parameters(&mut document);
    add_examples(&mut document);
    document
}

/// Whether clients get it as an `Event`; the others are what a stream says about itself, without an envelope.
#[must_use]
pub fn has_envelope(kind: EventType) -> bool {
    (kind.is_kept() && kind != EventType::Resync) || kind == EventType::TypingUpdated
}

/// An event of this type as the `data:` of a stream or in a poll.
#[must_use]
pub fn example_event(kind: EventType) -> Value {
    if !has_envelope(kind) {
        return example_data(kind);
    }
    let mut event = json!({"type": kind.as_str(), "version": EVENT_VERSION, "occurred_at": MOMENT, "conversation_id": CONVERSATION_ID,
        "rev": 12, "data": example_data(kind)});
    if kind.is_kept() {
        event["id"] = EVENT_ID.into();
    }
    event
}

fn describe_events(document: &mut Value) {
    let schemas = &mut document["components"]["schemas"];
    let (mut choices, mut mapping, mut on_stream) = (Vec::new(), Map::new(), Map::new());
    for kind in EventType::ALL.iter().copied() {
        let ((data, shape), below) = data_schema(kind);
        for (name, shape) in below.into_iter().chain([(data.clone(), shape)]) {
            if schemas[&name].is_null() {
                schemas[&name] = serde_json::to_value(shape).unwrap_or_default();
            }
        }
        let mut name = data.clone();
        if has_envelope(kind) {
            name = format!("{}Event", pascal(kind.as_str()));
            schemas[&name] = envelope(kind, &data);
            choices.push(json!({"$ref": reference(&name)}));
            mapping.insert(kind.as_str().to_owned(), reference(&name).into());
        }
        let told = json!({"id": kind.is_kept(), "data": {"$ref": reference(&name)}, "example": example_event(kind)});
        on_stream.insert(kind.as_str().to_owned(), told);
    }
    schemas["Event"] = json!({
        "description": "An event as clients see it, in a stream's `data:` and in polls. Clients pass over types that they do not know.",
        "oneOf": choices,
        "discriminator": {"propertyName": "type", "mapping": mapping},
    });
    if let Some(stream) = document["paths"].get_mut(STREAM_PATH).and_then(|item| item.get_mut("get")) {
        stream[EVENTS_EXTENSION] = on_stream.into();
        stream["responses"]["200"]["content"]["text/event-stream"]["example"] = format!(
            "retry: 2417\nid: 4k2f.1764500000000-2\n\nevent: hello\ndata: {}\n\nid: {EVENT_ID}\nevent: message.created\ndata: {}\n\n",
            example_event(EventType::Hello),
            example_event(EventType::MessageCreated)
        )
        .into();
    }
}

/// The `Event` of one type.
fn envelope(kind: EventType, data: &str) -> Value {
    let mut required = vec!["type", "version", "occurred_at", "conversation_id", "rev", "data"];
    let mut properties = json!({
        "type": {"const": kind.as_str(), "description": "What happened."},
        "version": {"const": EVENT_VERSION, "description": "Of this envelope."},
        "occurred_at": {"$ref": reference("Timestamp"), "description": "When it happened."},
        "conversation_id": {"type": "string", "description": "Where."},
        "rev": {"type": "integer", "minimum": 0, "maximum": INTEGER_MAX, "description": "The conversation's rev of the change."},
        "data": {"$ref": reference(data), "description": "The facts."},
    });
    if kind.is_kept() {
        let what = if kind == EventType::ReadAdvanced { "; absent where it is told to open streams alone" } else { "" };
        properties["id"] = json!({"type": "string", "description": format!("Opaque position in the user's log{what}.")});
        if kind != EventType::ReadAdvanced {
            required.push("id");
        }
    }
    json!({"type": "object", "description": format!("`{}`.", kind.as_str()), "required": required, "properties": properties,
        "examples": [example_event(kind)]})
}

fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

/// `message.created` as `MessageCreated`.
fn pascal(words: &str) -> String {
    let mut name = String::with_capacity(words.len());
    for word in words.split(['.', '_']) {
        let (first, rest) = word.split_at(1.min(word.len()));
        name.push_str(&first.to_ascii_uppercase());
        name.push_str(rest);
    }
    name
}

/// Bounds and examples of parameters, the same wherever a parameter of that name stands.
fn bound_parameters(document: &mut Value) {
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
                let (place, name) =
                    (parameter["in"].as_str().unwrap_or_default().to_owned(), parameter["name"].as_str().unwrap_or_default().to_owned());
                let Some(schema) = parameter.get_mut("schema").and_then(Value::as_object_mut) else { continue };
                never_null(schema);
                if let Some(Value::Object(more)) = bounds(path, &place, &name) {
                    for (word, value) in more {
                        schema.entry(word).or_insert(value);
                    }
                }
            }
        }
    }
}

/// A parameter that is not there is not there; `null` would be a text of four letters.
fn never_null(schema: &mut Map<String, Value>) {
    let Some(types) = schema.get_mut("type") else { return };
    let left: Vec<Value> = types.as_array().into_iter().flatten().filter(|word| *word != "null").cloned().collect();
    if let [only] = left.as_slice() {
        *types = only.clone();
    }
}

fn bounds(path: &str, place: &str, name: &str) -> Option<Value> {
    const KEY: &str = "^[A-Za-z0-9._:-]+$";
    let conversation = "^(single:[0-9a-f]{32}|group:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|system:[A-Za-z0-9._:-]{1,200})$";
    Some(match (place, name) {
        ("query", "limit") => json!({"minimum": 1, "maximum": 200, "default": 50}),
        ("query", "before" | "after" | "around" | "since_rev") if path.ends_with("/messages") => json!({"maximum": INTEGER_MAX}),
        ("query", "ack") => json!({"enum": ["accepted", "replicated", "archived"]}),
        ("query" | "header", "device" | "Idempotency-Key") => json!({"minLength": 1, "maxLength": 128}),
        ("query", "conversation") => json!({"pattern": conversation, "examples": [CONVERSATION_ID]}),
        ("query", "q") if path == "/v1/search" => json!({"minLength": 1, "maxLength": 200, "examples": ["lunch"]}),
        ("path", "id") if path.starts_with("/v1/conversations/") || path.starts_with("/v1/audit/conversations/") => {
            json!({"pattern": conversation, "examples": [CONVERSATION_ID]})
        }
        ("path", "id") if path.starts_with("/v1/media/") => json!({"format": "uuid"}),
        ("path", "id") => json!({"pattern": KEY, "maxLength": 200, "examples": ["4711"]}),
        ("path", "type") => json!({"pattern": KEY, "maxLength": 64, "examples": ["recipe"]}),
        ("path", "seq") => json!({"minimum": 1, "maximum": INTEGER_MAX, "examples": [7]}),
        ("path", "user_id") => json!({"minLength": 1, "maxLength": 128, "pattern": "^[^/\\u0000-\\u001f\\u007f]+$", "examples": ["bob"]}),
        ("path", "client_id") => json!({"minLength": 1, "maxLength": 128}),
        ("path", "emoji") => json!({"minLength": 1, "examples": ["\u{1F44D}"]}),
        _ => return None,
    })
}

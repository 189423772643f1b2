//! Examples of the OpenAPI document. Some are written out here; for every other body one is composed from its shape, so that no body is
//! without. A test holds each against its own schema.

use serde_json::{Map, Value, json};

/// A group of the examples.
pub const CONVERSATION_ID: &str = "group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11";
/// A moment of the examples.
pub const MOMENT: &str = "2026-11-30T15:54:00.123Z";
/// A position of the examples.
pub const EVENT_ID: &str = "4k2f.1764500000000-3";
/// A UUID of the examples.
const ID: &str = "0193c1f0-7a30-7cc0-8a2e-1f0d5b1c9e77";
/// A picture of the examples.
const PICTURE: &str = "0193c1ee-52b1-7aa2-9c40-6f5f3f0d2b18";
/// An idempotency key of the examples.
const KEY: &str = "0193c1f0-7a2f-7000-8000-000000000001";
/// How deep shapes may lie in each other when an example is composed.
const DEPTH_MAX: usize = 12;

/// A message of the examples.
#[must_use]
pub fn message() -> Value {
    json!({"id": ID, "conversation_id": CONVERSATION_ID, "seq": 7, "rev": 12, "sender": "ann", "client_id": KEY, "kind": "text",
        "body": "Lunch at one?", "media": [], "reply_to": null, "share": null, "mentions": [], "reactions": [], "created_at": MOMENT,
        "edited_at": null, "deleted_at": null, "deleted_by": null})
}

/// A conversation of the examples.
#[must_use]
pub fn conversation() -> Value {
    json!({"id": CONVERSATION_ID, "kind": "group", "title": "Lunch", "owner": "ann", "display_name": "Lunch", "history": "all",
        "member_count": 3, "head_seq": 7, "rev": 12, "created_at": "2026-11-30T15:50:00.000Z", "updated_at": MOMENT,
        "last_message": message(), "me": me()})
}

fn me() -> Value {
    json!({"role": "member", "joined_at": "2026-11-30T15:50:00.000Z", "read_seq": 6, "read_at": "2026-11-30T15:53:10.500Z", "unread": 1,
        "unread_more": false, "unread_mentions": 0, "muted": false, "pinned": false, "hidden": false, "marked_unread": false,
        "cleared_to": 0, "blocked": false})
}

/// Examples that are written out, by the name of the shape: what a body means is often not in the shapes of its fields.
fn written(shape: &str) -> Option<Vec<(&'static str, Value)>> {
    Some(match shape {
        "Message" => vec![("message", message())],
        "Conversation" => vec![("conversation", conversation())],
        "CreateConversation" => vec![
            ("single", json!({"kind": "single", "peer": "bob"})),
            ("group", json!({"kind": "group", "title": "Lunch", "members": ["bob", "cid"], "history": "from_join"})),
            ("system", json!({"kind": "system", "key": "order:123", "title": "Your order", "members": ["ann"]})),
        ],
        "ImportMessage" => vec![("line", json!({"id": "42", "sender": "zoe", "body": "Yes!", "at": MOMENT, "reply_to": "41"}))],
        "ImportBody" => vec![(
            "a group",
            json!({"conversation": {"kind": "group", "key": "old-room-7", "owner": "ann", "members": ["bob"], "title": "Lunch"},
                "messages": [{"id": "41", "sender": "zoe", "body": "Lunch at one?", "at": MOMENT}]}),
        )],
        "PatchConversation" => vec![("renamed", json!({"title": "Lunch on Friday"}))],
        "SendMessage" => vec![
            ("text", json!({"client_id": KEY, "body": "Lunch at one?"})),
            ("to a peer", json!({"client_id": KEY, "body": "Hello Bob", "peer": "bob"})),
            ("answer", json!({"client_id": KEY, "body": "Yes!", "reply_to": 7})),
            ("pictures", json!({"client_id": KEY, "kind": "image", "media": [PICTURE], "body": format!("The menu: ![img:{PICTURE}]")})),
            ("shared", json!({"client_id": KEY, "kind": "share", "share": {"type": "recipe", "id": "4711"}})),
        ],
        "PatchMessage" => vec![("words", json!({"body": "Lunch at two?"}))],
        "MessagesAnswer" => vec![
            ("page", json!({"items": [message()], "has_more_before": true, "has_more_after": false, "head_seq": 7, "voids": []})),
            ("changes", json!({"items": [message()], "next_rev": 12, "has_more": false, "head_seq": 7, "voids": [[3, 4]]})),
        ],
        "PollAnswer" => vec![(
            "events",
            json!({"events": [super::openapi::example_event(crate::domain::event::EventType::MessageCreated)],
            "next": EVENT_ID, "resync": null}),
        )],
        "Problem" => vec![(
            "not_found",
            json!({"type": "urn:seqline:problem:not_found", "title": "Not found", "status": 404,
            "code": "not_found", "detail": "There is no such thing, or it is not yours to see."}),
        )],
        "ReactionsOfMessage" => vec![("one", json!({"seq": 7, "rev": 13, "reactions": [{"emoji": "\u{1F44D}", "count": 2, "me": true}]}))],
        "Erasure" => vec![
            ("running", json!({"user_id": "bob", "state": "running", "asked_at": MOMENT, "finished_at": null, "messages": 0})),
            (
                "done",
                json!({"user_id": "bob", "state": "done", "asked_at": MOMENT, "finished_at": "2026-11-30T15:54:03.500Z", "messages": 412}),
            ),
        ],
        "ReaderList" => {
            vec![("two", json!({"count": 2, "items": [{"user_id": "bob", "read_at": MOMENT}, {"user_id": "cid", "read_at": MOMENT}]}))]
        }
        _ => return None,
    })
}

/// What a field of this name may hold, when its shape says no more than "a text" or "a number".
fn by_name(field: &str) -> Option<Value> {
    Some(match field {
        "user_id" | "peer" | "members" | "mentions" => "bob".into(),
        "sender" | "owner" | "by" => "ann".into(),
        "name" | "display_name" => "Bob".into(),
        "title" => "Lunch".into(),
        "body" | "preview" => "Lunch at one?".into(),
        "conversation_id" | "conversation" => CONVERSATION_ID.into(),
        "client_id" => KEY.into(),
        "media" => PICTURE.into(),
        "type" => "recipe".into(),
        "id" | "head" | "next" | "events_head" | "resumed_from" => EVENT_ID.into(),
        "url" => "https://app.example/recipes/4711".into(),
        "avatar_url" | "image_url" => "https://app.example/pictures/4711.png".into(),
        "emoji" => "\u{1F44D}".into(),
        "device" => "phone".into(),
        "mime_type" => "image/png".into(),
        "key" => "order:123".into(),
        "ticket" => "k2Jx0cVf9bq1".into(),
        "expires_in" => 300.into(),
        "seq" | "read_seq" | "head_seq" => 7.into(),
        "rev" | "next_rev" => 12.into(),
        "count" | "total" | "conversations" | "unread" => 1.into(),
        "width" => 640.into(),
        "height" => 480.into(),
        "size" => 48_213.into(),
        _ => return None,
    })
}

/// Gives every JSON body that has none an example.
pub fn add_examples(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    for item in document["paths"].as_object_mut().into_iter().flat_map(|paths| paths.values_mut()) {
        for operation in
            item.as_object_mut().into_iter().flat_map(|item| item.values_mut()).filter(|value| value.get("responses").is_some())
        {
            illustrate(&schemas, operation.pointer_mut("/requestBody/content"), true);
            for answer in operation["responses"].as_object_mut().into_iter().flat_map(|answers| answers.values_mut()) {
                illustrate(&schemas, answer.get_mut("content"), false);
            }
        }
    }
}

fn illustrate(schemas: &Value, content: Option<&mut Value>, is_request: bool) {
    for (kind, media) in content.and_then(Value::as_object_mut).into_iter().flatten() {
        if !kind.ends_with("json") || !media["example"].is_null() || !media["examples"].is_null() {
            continue;
        }
        let name = media["schema"]["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default().to_owned();
        match written(&name) {
            Some(examples) if examples.len() > 1 => {
                media["examples"] = examples.into_iter().map(|(name, value)| (name.to_owned(), json!({"value": value}))).collect();
            }
            Some(examples) => media["example"] = examples.into_iter().next().map(|(_, value)| value).unwrap_or_default(),
            None => media["example"] = Composer { schemas, is_request }.compose(&media["schema"], "", 0),
        }
    }
}

struct Composer<'a> {
    schemas: &'a Value,
    /// In requests what may be null is shown with a value, in answers as null.
    is_request: bool,
}

impl Composer<'_> {
    fn compose(&self, schema: &Value, field: &str, depth: usize) -> Value {
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        if let Some(name) = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) {
            let first = written(name).and_then(|examples| examples.into_iter().next());
            return first.map_or_else(|| self.compose(&self.schemas[name], field, depth + 1), |(_, value)| value);
        }
        for word in [&schema["const"], &schema["example"], &schema["examples"][0], &schema["enum"][0]] {
            if !word.is_null() {
                return word.clone();
            }
        }
        if let Some(choices) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()).or(schema["allOf"].as_array()) {
            let may_be_null = choices.iter().any(|choice| choice["type"] == "null");
            if may_be_null && !self.is_request {
                return Value::Null;
            }
            return choices
                .iter()
                .find(|choice| choice["type"] != "null")
                .map_or(Value::Null, |choice| self.compose(choice, field, depth + 1));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let kind = types.iter().copied().find(|kind| *kind != "null").unwrap_or_default();
        let named = by_name(field);
        let may_be_null = types.contains(&"null") && !self.is_request;
        match kind {
            "string" if schema["format"] == "uuid" => ID.into(),
            "string" if schema["format"] == "date-time" => MOMENT.into(),
            "string" => named.filter(Value::is_string).unwrap_or_else(|| if may_be_null { Value::Null } else { "text".into() }),
            "integer" | "number" => named.filter(Value::is_number).unwrap_or_else(|| schema["minimum"].as_u64().unwrap_or(0).into()),
            "boolean" => false.into(),
            "array" => match (schema["prefixItems"].as_array(), may_be_null) {
                (_, true) => Value::Null,
                (Some(items), false) => items.iter().map(|item| self.compose(item, field, depth + 1)).collect(),
                (None, false) => json!([self.compose(&schema["items"], field, depth + 1)]),
            },
            _ => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                fields.map(|(name, schema)| (name.clone(), self.compose(schema, name, depth + 1))).collect::<Map<_, _>>().into()
            }
        }
    }
}

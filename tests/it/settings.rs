//! Settings and the command line: what is wrong is refused by name, in one line, with exit code 2; secrets stay out of every text.

use std::process::{Command, Output};

use clap::Parser;
use seqline::settings::{Role, Settings, shown_url, table};

use crate::harness::user::SECRET;

/// Settings alone, as `serve` takes them.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Alone {
    #[command(flatten)]
    settings: Settings,
}

const GOOD: &[&str] = &[
    "--redis-url=redis://127.0.0.1:1",
    "--database-url=postgres://seqline:hidden-word@127.0.0.1:1/seqline",
    "--jwt-hs256-secrets=a secret of tests; at least 32 bytes long",
];

const VAPID_KEY: &str = "--vapid-private-key=yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
const CONTACT: &str = "--vapid-subject=mailto:ops@chat.app";
const HOOK_SECRET: &str = "--webhook-secrets=a secret of tests for webhooks";

fn settings(more: &[&str]) -> Settings {
    Alone::try_parse_from(["seqline"].iter().chain(GOOD).chain(more)).unwrap().settings.tidy()
}

fn fault(more: &[&str]) -> Option<String> {
    settings(more).validate(Role::Gateway).err().map(|fault| fault.to_string())
}

#[test]
fn good_settings_pass_without_a_warning() {
    assert_eq!(fault(&[]), None);
    let hooks = ["--webhook-url=https://host.example/hook?a=b", "--pre-send-hook-url=http://localhost:1", HOOK_SECRET];
    assert_eq!(fault(&hooks), None);
    assert_eq!(fault(&[VAPID_KEY, CONTACT]), None);
    assert_eq!(settings(&hooks).warnings(), Vec::<String>::new());
    assert_eq!(settings(&[]).warnings(), Vec::<String>::new());
}

#[test]
fn each_fault_names_its_variable() {
    for (flags, name) in [
        (&["--redis-url="][..], "SEQLINE_REDIS_URL"),
        (&["--redis-url=127.0.0.1:6379"], "SEQLINE_REDIS_URL"),
        (&["--redis-url=http://127.0.0.1"], "SEQLINE_REDIS_URL"),
        (&["--database-url="], "SEQLINE_DATABASE_URL"),
        (&["--database-url=mysql://x"], "SEQLINE_DATABASE_URL"),
        (&["--jwt-jwks=http://host.example/keys"], "SEQLINE_JWT_JWKS"),
        (&["--jwt-jwks=ftp://host.example/keys"], "SEQLINE_JWT_JWKS"),
        (&["--jwt-cookie=jwt"], "SEQLINE_JWT_COOKIE"),
        (&["--jwt-cookie=a b", "--allowed-origins=https://app.example"], "SEQLINE_JWT_COOKIE"),
        (&["--allowed-origins=*"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=https://*.example"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=null"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=app.example"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=https://app.example/"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=https://App.example"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=https://app.example:443"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--allowed-origins=https://a.example,file:///x"], "SEQLINE_ALLOWED_ORIGINS"),
        (&["--listen=127.0.0.1:7000", "--admin-listen=127.0.0.1:7000"], "SEQLINE_ADMIN_LISTEN"),
        (&["--database-connections=0"], "SEQLINE_DATABASE_CONNECTIONS"),
        (&["--webhook-url=http://host.example/hook", HOOK_SECRET], "SEQLINE_WEBHOOK_URL"),
        (&["--webhook-url=host.example", HOOK_SECRET], "SEQLINE_WEBHOOK_URL"),
        (&["--webhook-url=https://host.example/hook"], "SEQLINE_WEBHOOK_SECRETS"),
        (&["--webhook-secrets=a secret of tests for webhooks,hidden-word"], "SEQLINE_WEBHOOK_SECRETS"),
        (&["--webhook-secrets=whsec_aGlkZGVuLXdvcmQ="], "SEQLINE_WEBHOOK_SECRETS"),
        (&["--webhook-secrets=whsec_no base64 hidden-word but long"], "SEQLINE_WEBHOOK_SECRETS"),
        (&["--webhook-events=message.made"], "SEQLINE_WEBHOOK_EVENTS"),
        (&["--webhook-events=typing.updated"], "SEQLINE_WEBHOOK_EVENTS"),
        (&["--webhook-events=resync"], "SEQLINE_WEBHOOK_EVENTS"),
        (&["--webhook-events=", "--webhook-url=https://host.example/hook", HOOK_SECRET], "SEQLINE_WEBHOOK_EVENTS"),
        (&["--vapid-private-key=hidden-word", CONTACT], "SEQLINE_VAPID_PRIVATE_KEY"),
        (&["--vapid-private-key=/no/such/file", CONTACT], "SEQLINE_VAPID_PRIVATE_KEY"),
        (&[VAPID_KEY], "SEQLINE_VAPID_SUBJECT"),
        (&[VAPID_KEY, "--vapid-subject=mailto:x@localhost"], "SEQLINE_VAPID_SUBJECT"),
        (&[VAPID_KEY, "--vapid-subject=mailto:you@example.com"], "SEQLINE_VAPID_SUBJECT"),
        (&[VAPID_KEY, "--vapid-subject=ops@chat.app"], "SEQLINE_VAPID_SUBJECT"),
        (&[VAPID_KEY, "--vapid-subject=https://localhost/contact"], "SEQLINE_VAPID_SUBJECT"),
        (&["--push-ttl=0"], "SEQLINE_PUSH_TTL"),
        (&["--push-calls-max=0"], "SEQLINE_PUSH_CALLS_MAX"),
        (&["--webhook-timeout-ms=1"], "SEQLINE_WEBHOOK_TIMEOUT_MS"),
        (&["--webhook-max-age=0"], "SEQLINE_WEBHOOK_MAX_AGE"),
        (&["--webhook-calls-max=0"], "SEQLINE_WEBHOOK_CALLS_MAX"),
        (&["--pre-send-hook-url=ftp://host.example", HOOK_SECRET], "SEQLINE_PRE_SEND_HOOK_URL"),
        (&["--pre-send-hook-url=https://host.example"], "SEQLINE_WEBHOOK_SECRETS"),
        (
            &["--pre-send-hook-url=https://host.example", HOOK_SECRET, "--pre-send-hook-deadline-ms=5000"],
            "SEQLINE_PRE_SEND_HOOK_DEADLINE_MS",
        ),
        (&["--pre-send-hook-away=perhaps"], "SEQLINE_PRE_SEND_HOOK_AWAY"),
        (&["--shards=0"], "SEQLINE_SHARDS"),
        (&["--partitions=0"], "SEQLINE_PARTITIONS"),
        (&["--partitions=5000"], "SEQLINE_PARTITIONS"),
        (&["--log-max-entries=0"], "SEQLINE_LOG_MAX_ENTRIES"),
        (&["--log-max-age=0"], "SEQLINE_LOG_MAX_AGE"),
        (&["--window-messages=0"], "SEQLINE_WINDOW_MESSAGES"),
        (&["--key-window=0"], "SEQLINE_KEY_WINDOW"),
        (&["--cool-after=0"], "SEQLINE_COOL_AFTER"),
        (&["--lease-block=0"], "SEQLINE_LEASE_BLOCK"),
        (&["--outbox-max-entries=0"], "SEQLINE_OUTBOX_MAX_ENTRIES"),
        (&["--archive-batch-rows=0"], "SEQLINE_ARCHIVE_BATCH_ROWS"),
        (&["--heartbeat-ms=0"], "SEQLINE_HEARTBEAT_MS"),
        (&["--heartbeat-ms=60001"], "SEQLINE_HEARTBEAT_MS"),
        (&["--stream-life-max-ms=0"], "SEQLINE_STREAM_LIFE_MAX_MS"),
        (&["--stream-stall-ms=0"], "SEQLINE_STREAM_STALL_MS"),
        (&["--request-deadline-ms=0"], "SEQLINE_REQUEST_DEADLINE_MS"),
        (&["--body-bytes-max=0"], "SEQLINE_BODY_BYTES_MAX"),
        (&["--group-members-max=0"], "SEQLINE_GROUP_MEMBERS_MAX"),
        (&["--unread-max=0"], "SEQLINE_UNREAD_MAX"),
        (&["--drain-ms=0"], "SEQLINE_DRAIN_MS"),
        (&["--log-format=xml"], "SEQLINE_LOG_FORMAT"),
    ] {
        let found = fault(flags);
        assert!(found.as_deref().is_some_and(|text| text.starts_with(name)), "{flags:?}: {found:?}");
    }
}

#[test]
fn keys_are_needed_by_gateways_and_short_secrets_refused() {
    let bare = |secrets: &str| {
        let flags = ["seqline", GOOD[0], GOOD[1], secrets];
        Alone::try_parse_from(flags).unwrap().settings.tidy()
    };
    let without = bare("--jwt-hs256-secrets=");
    assert!(without.validate(Role::Gateway).unwrap_err().to_string().starts_with("SEQLINE_JWT_HS256_SECRETS"));
    assert_eq!(without.validate(Role::Worker), Ok(()), "a worker takes no tokens");
    for (secrets, number) in [("short", "1"), ("a secret of tests; at least 32 bytes long,1234567890123456789012345678901", "2")] {
        let fault = bare(&format!("--jwt-hs256-secrets={secrets}")).validate(Role::Gateway).unwrap_err().to_string();
        assert!(fault.contains(&format!("number {number} ")) && !fault.contains("short") && !fault.contains("1234"), "{fault}");
    }
}

#[test]
fn legal_settings_that_endanger_each_other_are_said() {
    for (flags, word) in [
        (&["--stream-stall-ms=20000"][..], "SEQLINE_STREAM_STALL_MS"),
        (&["--drain-ms=1000"], "SEQLINE_DRAIN_MS"),
        (
            &["--pre-send-hook-url=https://host.example", HOOK_SECRET, "--pre-send-hook-deadline-ms=3000"],
            "SEQLINE_PRE_SEND_HOOK_DEADLINE_MS",
        ),
        (&["--log-max-age=60"], "SEQLINE_LOG_MAX_AGE"),
        (&["--cool-after=60"], "SEQLINE_COOL_AFTER"),
        (&["--window-messages=10"], "SEQLINE_WINDOW_MESSAGES"),
        (&["--outbox-max-entries=1000"], "SEQLINE_OUTBOX_MAX_ENTRIES"),
        (&["--jwt-jwks=https://host.example/keys"], "SEQLINE_JWT_AUDIENCE"),
        (&["--allowed-origins=http://app.example"], "SEQLINE_ALLOWED_ORIGINS"),
    ] {
        let settings = settings(flags);
        assert_eq!(settings.validate(Role::Gateway), Ok(()), "{flags:?}");
        assert!(settings.warnings().iter().any(|w| w.contains(word)), "{flags:?}: {:?}", settings.warnings());
    }
}

#[test]
fn what_is_debugged_holds_no_secret() {
    let text = format!("{:?}", settings(&["--redis-url=rediss://user:p@ss@redis.example:1/0?password=hidden-word"]));
    for secret in ["hidden-word", "p@ss", "a secret"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(shown_url("rediss://user:p@ss@redis.example:1/0?x=y"), "rediss://redis.example:1/0");
    assert_eq!(shown_url("what"), "(not a URL)");
}

fn seqline(args: &[&str], envs: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seqline"));
    command.env_clear().args(args).envs(envs.iter().copied());
    command.output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_wrong_setting_is_one_line_and_exit_code_two() {
    let good = [
        ("SEQLINE_REDIS_URL", "redis://127.0.0.1:1"),
        ("SEQLINE_DATABASE_URL", "postgres://a:hidden-word@127.0.0.1:1/x"),
        ("SEQLINE_JWT_HS256_SECRETS", SECRET),
    ];
    for (name, value) in [
        ("SEQLINE_REDIS_URL", ""),
        ("SEQLINE_DATABASE_URL", "hidden-word"),
        ("SEQLINE_JWT_HS256_SECRETS", "hidden-word"),
        ("SEQLINE_HEARTBEAT_MS", "abc"),
        ("SEQLINE_SHARDS", "-1"),
        ("SEQLINE_SHARDS", "70000"),
        ("SEQLINE_LISTEN", "nowhere"),
        ("SEQLINE_LOG", "seqline=[="),
        ("SEQLINE_LOG_FORMAT", "xml"),
        ("SEQLINE_JWT_JWKS", "/there/is/no/such/file"),
    ] {
        for command in ["serve", "work"] {
            if command == "work" && name.starts_with("SEQLINE_JWT") {
                continue;
            }
            let mut envs = good.to_vec();
            envs.push((name, value));
            let output = seqline(&[command], &envs);
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{command} {name}={value}: {text}");
            assert!(text.contains(name) && text.lines().count() == 1, "{command} {name}={value}: {text}");
            assert!(!text.contains("hidden-word") && output.stdout.is_empty(), "{text}");
        }
    }
}

#[test]
fn help_teaches_and_every_shell_gets_completions() {
    let help = seqline(&["--help"], &[]);
    let text = String::from_utf8(help.stdout).unwrap();
    assert!(help.status.success());
    for word in ["serve", "work", "migrate", "token", "load", "doctor", "completions", "Examples:", "Exit codes"] {
        assert!(text.contains(word), "{word} is not in\n{text}");
    }
    let serve = String::from_utf8(seqline(&["serve", "--help"], &[("SEQLINE_JWT_HS256_SECRETS", "hidden-word")]).stdout).unwrap();
    assert!(serve.contains("SEQLINE_REDIS_URL") && serve.contains("--with-worker") && !serve.contains("hidden-word"));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = seqline(&["completions", shell], &[]);
        assert!(output.status.success() && output.stdout.len() > 500, "{shell}");
    }
    assert_eq!(seqline(&["completions", "cmd"], &[]).status.code(), Some(2));
    assert_eq!(seqline(&["srve"], &[]).status.code(), Some(2));
}

#[tokio::test]
async fn tokens_made_here_are_accepted_here() {
    let envs = [("SEQLINE_JWT_HS256_SECRETS", "a secret of tests; at least 32 bytes long,another one; of at least 32 bytes as well")];
    let output = seqline(&["token", "--user", "ann b", "--ttl", "2m", "--scope", "service", "--name", "Ann", "--device", "phone"], &envs);
    assert!(output.status.success(), "{}", stderr(&output));
    let token = String::from_utf8(output.stdout).unwrap();
    let ring = seqline::identity::Keyring::new(&["a secret of tests; at least 32 bytes long"], None, Default::default()).unwrap();
    let now = i64::try_from(crate::harness::user::now_s()).unwrap() * 1_000;
    let caller = ring.prove(token.trim_end(), now).await.unwrap();
    assert_eq!((caller.user.as_str(), caller.name.as_deref(), caller.device.as_deref()), ("ann b", Some("Ann"), Some("phone")));
    assert!(caller.scopes.service && (caller.expires_at - now - 120_000).abs() < 60_000);

    assert_eq!(seqline(&["token", "--user", "a/b"], &envs).status.code(), Some(2));
    assert_eq!(seqline(&["token", "--user", "ann", "--ttl", "soon"], &envs).status.code(), Some(2));
    let without = seqline(&["token", "--user", "ann"], &[]);
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("SEQLINE_JWT_HS256_SECRETS"));
}

#[test]
fn the_readme_shows_the_settings_as_they_are() {
    // A checkout without the README (a packaged source, say) has nothing to compare.
    let Ok(readme) = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")) else { return };
    let (begin, end) = ("<!-- settings:begin -->", "<!-- settings:end -->");
    let shown = readme.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).map(|(table, _)| table.trim());
    let made = table::markdown();
    assert_eq!(shown, Some(made.trim()), "put the output of `seqline settings` between the marks in README.md");
}

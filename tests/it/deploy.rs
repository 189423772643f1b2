//! What lies in `deploy/` fits the program: settings, ports, commands; and nothing starts with a secret that everybody knows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use seqline::settings::Settings;
use yaml_rust2::{Yaml, YamlLoader};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn documents(path: &Path) -> Vec<Yaml> {
    let text = fs::read_to_string(path).unwrap();
    YamlLoader::load_from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

struct Setting {
    name: String,
    default: String,
    help: String,
    hidden: bool,
}

fn settings() -> Vec<Setting> {
    let command = Settings::augment_args(Command::new("settings"));
    let arguments = command.get_arguments().filter_map(|arg| {
        let defaults: Vec<String> = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        Some(Setting {
            name: arg.get_env()?.to_string_lossy().into_owned(),
            default: defaults.join(","),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            hidden: arg.is_hide_set(),
        })
    });
    arguments.collect()
}

/// Without these no process starts; they are written so that it does not start with what stands there either.
const REQUIRED: [&str; 3] = ["SEQLINE_REDIS_URL", "SEQLINE_DATABASE_URL", "SEQLINE_JWT_HS256_SECRETS"];
const PLACEHOLDER: &str = "change-me";

fn annotated_settings() -> String {
    let mut text = String::from(
        "# Every setting, with its default where it has one. Made from src/settings.rs and checked by a test; after a change there:\n\
         #   SEQLINE_WRITE=1 cargo test --test it -- deploy::the_annotated_settings\n\
         # Three have no default that could work: with change-me no process starts.\n",
    );
    for setting in settings().iter().filter(|setting| !setting.hidden) {
        let (sign, value) = if REQUIRED.contains(&setting.name.as_str()) { ("", PLACEHOLDER) } else { ("#", setting.default.as_str()) };
        text.push_str(&format!("\n# {}\n{sign}{}={value}\n", setting.help, setting.name));
    }
    text
}

#[test]
fn the_annotated_settings_are_those_of_the_program() {
    let path = root().join("deploy/seqline.env");
    let expected = annotated_settings();
    if std::env::var_os("SEQLINE_WRITE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), expected, "run the command that stands at the top of deploy/seqline.env");
}

#[test]
fn every_variable_named_in_deploy_is_a_setting() {
    let known: BTreeSet<String> = settings().into_iter().map(|setting| setting.name).collect();
    for path in files(&root().join("deploy")) {
        // Pictures name none.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("SEQLINE_"));
        // One is of the tests, the other holds the token of an example.
        for word in words.filter(|word| !["SEQLINE_WRITE", "SEQLINE_TOKEN"].contains(word)) {
            // The script that starts a development system has switches of its own.
            assert!(known.contains(word) || path.ends_with("start.sh"), "{}: {word} is no setting", path.display());
        }
    }
}

#[test]
fn every_yaml_file_can_be_read_and_opens_with_its_why() {
    let all: Vec<PathBuf> = files(&root().join("deploy")).into_iter().chain(files(&root().join("dashboards"))).collect();
    let yaml = all.iter().filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let mut count = 0;
    for path in yaml {
        assert!(!documents(path).is_empty(), "{}", path.display());
        assert!(fs::read_to_string(path).unwrap().starts_with("# "), "{} does not say what it is for", path.display());
        count += 1;
    }
    assert!(count > 8);
}

#[test]
fn compose_runs_two_gateways_a_worker_and_what_they_need() {
    let compose = documents(&root().join("deploy/compose.yaml")).remove(0);
    let services = compose["services"].as_hash().unwrap();
    let service = |name: &str| &services[&Yaml::String(name.to_owned())];
    for name in ["migrate", "gateway-1", "gateway-2", "worker", "loadbalancer", "redis", "postgres", "prometheus", "grafana"] {
        assert!(!service(name).is_badvalue() && service(name).as_hash().is_some(), "{name}");
    }
    let commands = seqline_commands();
    for name in ["migrate", "gateway-1", "gateway-2", "worker"] {
        let command = service(name)["command"][0].as_str().unwrap();
        assert!(commands.contains(command), "{name}: there is no command {command}");
        // Every service that runs our image takes the shared settings (a merge key, which this reader leaves alone).
        assert!(service(name)["<<"]["environment"]["SEQLINE_REDIS_URL"].as_str().is_some(), "{name}");
    }
    let redis: Vec<&str> = service("redis")["command"].as_vec().unwrap().iter().filter_map(Yaml::as_str).collect();
    for pair in [["--appendonly", "yes"], ["--maxmemory-policy", "noeviction"]] {
        assert!(redis.windows(2).any(|words| words == pair), "{pair:?}");
    }
    // Nothing is open to the network.
    for (name, service) in services {
        for port in service["ports"].as_vec().into_iter().flatten() {
            assert!(port.as_str().unwrap().starts_with("127.0.0.1:"), "{name:?}");
        }
    }
    // Files that are mounted exist.
    for (_, service) in services {
        for volume in service["volumes"].as_vec().into_iter().flatten().filter_map(Yaml::as_str).filter(|volume| volume.starts_with('.')) {
            let file = root().join("deploy").join(volume.split(':').next().unwrap());
            assert!(file.exists(), "{volume}");
        }
    }
}

#[test]
fn compose_holds_no_secret_and_does_not_start_without() {
    let text = fs::read_to_string(root().join("deploy/compose.yaml")).unwrap();
    let example = fs::read_to_string(root().join("deploy/secrets.env.example")).unwrap();
    let asked: BTreeSet<&str> = text.split("${").skip(1).map(|rest| rest.split(['}', ':']).next().unwrap()).collect();
    for name in &asked {
        assert!(text.contains(&format!("${{{name}:?")), "{name} must stop compose when it is missing");
        assert!(example.lines().any(|line| line == format!("{name}=")), "{name} must stand in the example, empty");
    }
    assert_eq!(asked.len(), example.lines().filter(|line| line.ends_with('=')).count());
    for line in text.lines().filter(|line| line.to_lowercase().contains("password")) {
        assert!(line.contains("${") || line.contains("--requirepass"), "{line}");
    }
    let ignored = fs::read_to_string(root().join(".gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "/deploy/.env"));
}

#[test]
fn ports_agree_everywhere() {
    let defaults: BTreeMap<String, String> = settings().into_iter().map(|setting| (setting.name, setting.default)).collect();
    let port = |name: &str| defaults[name].rsplit(':').next().unwrap().to_owned();
    let (api, admin) = (port("SEQLINE_LISTEN"), port("SEQLINE_ADMIN_LISTEN"));
    let deploy = root().join("deploy");
    for file in ["compose.yaml", "kubernetes/settings.yaml"] {
        let text = fs::read_to_string(deploy.join(file)).unwrap();
        assert!(
            text.contains(&format!("SEQLINE_LISTEN: 0.0.0.0:{api}")) && text.contains(&format!("SEQLINE_ADMIN_LISTEN: 0.0.0.0:{admin}")),
            "{file}"
        );
    }
    let image = fs::read_to_string(deploy.join("Containerfile")).unwrap();
    assert!(image.contains(&format!("EXPOSE {api} {admin}")));
    let nginx = fs::read_to_string(deploy.join("nginx.conf")).unwrap();
    assert!(nginx.contains(&format!("server gateway-1:{api} ")) && nginx.contains(&format!("server gateway-2:{api} ")));
    let prometheus = documents(&deploy.join("prometheus.yaml")).remove(0);
    for config in prometheus["scrape_configs"][0]["static_configs"].as_vec().unwrap() {
        for target in config["targets"].as_vec().unwrap() {
            assert!(target.as_str().unwrap().ends_with(&format!(":{admin}")));
        }
    }
    for document in kubernetes() {
        for container in document["spec"]["template"]["spec"]["containers"].as_vec().into_iter().flatten() {
            for port in container["ports"].as_vec().into_iter().flatten() {
                let expected = if port["name"].as_str() == Some("http") { &api } else { &admin };
                assert_eq!(port["containerPort"].as_i64().unwrap().to_string(), *expected);
            }
        }
        let annotated = &document["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"];
        assert!(annotated.as_str().is_none_or(|port| port == admin));
    }
}

fn kubernetes() -> Vec<Yaml> {
    let folder = root().join("deploy/kubernetes");
    let list = documents(&folder.join("kustomization.yaml")).remove(0);
    let resources = list["resources"].as_vec().unwrap();
    resources.iter().flat_map(|file| documents(&folder.join(file.as_str().unwrap()))).collect()
}

#[test]
fn kubernetes_has_the_parts_and_they_find_each_other() {
    let all = kubernetes();
    let find = |kind: &str, name: &str| {
        let found = all.iter().find(|d| d["kind"].as_str() == Some(kind) && d["metadata"]["name"].as_str() == Some(name));
        found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
    };
    for name in ["seqline-gateway", "seqline-worker"] {
        let deployment = find("Deployment", name);
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&deployment["spec"]["selector"]["matchLabels"], labels);
        assert_eq!(&find("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"], labels);
        let pod = &deployment["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")] {
            assert_eq!(container[probe]["httpGet"]["path"].as_str(), Some(path), "{name}");
            assert_eq!(container[probe]["httpGet"]["port"].as_str(), Some("admin"), "{name}");
        }
        // The pod may live longer than its drain takes.
        let drain_ms: i64 = find("ConfigMap", "seqline-settings")["data"]["SEQLINE_DRAIN_MS"].as_str().unwrap().parse().unwrap();
        let before = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64().unwrap_or(0);
        assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() >= before + drain_ms / 1_000 + 10, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    }
    let commands = seqline_commands();
    for document in &all {
        for container in document["spec"]["template"]["spec"]["containers"].as_vec().into_iter().flatten() {
            let command = container["args"][0].as_str().unwrap();
            assert!(commands.contains(command), "there is no command {command}");
            let sources: Vec<_> = container["envFrom"].as_vec().unwrap().iter().collect();
            assert_eq!(sources[0]["configMapRef"]["name"].as_str(), Some("seqline-settings"));
            assert_eq!(sources[1]["secretRef"]["name"].as_str(), Some("seqline-secrets"));
        }
    }
    let gateway = find("Deployment", "seqline-gateway");
    assert!(gateway["spec"]["replicas"].is_badvalue(), "the autoscaler decides how many gateways there are");
    let scaler = find("HorizontalPodAutoscaler", "seqline-gateway");
    let adapter = documents(&root().join("deploy/kubernetes/metrics-adapter.yaml")).remove(0);
    let offered: BTreeSet<&str> =
        adapter["rules"]["custom"].as_vec().unwrap().iter().filter_map(|rule| rule["name"]["as"].as_str()).collect();
    for metric in scaler["spec"]["metrics"].as_vec().unwrap() {
        let name = metric["pods"]["metric"]["name"].as_str().unwrap();
        assert!(offered.contains(name), "the adapter does not offer {name}");
    }
    for rule in adapter["rules"]["custom"].as_vec().unwrap() {
        let series = rule["seriesQuery"].as_str().unwrap().split('{').next().unwrap().trim_end_matches("_bucket");
        assert!(seqline::metrics::rows().iter().any(|row| row.name == series), "{series} is not in src/metrics.rs");
    }
    let service = find("Service", "seqline");
    assert_eq!(service["spec"]["selector"], gateway["spec"]["selector"]["matchLabels"]);
    assert_eq!(find("Ingress", "seqline")["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"].as_str(), Some("seqline"));
    find("Job", "seqline-migrate");
}

#[test]
fn the_example_secrets_of_kubernetes_open_nothing() {
    let secret = documents(&root().join("deploy/kubernetes/secrets.example.yaml")).remove(0);
    for name in REQUIRED {
        assert_eq!(secret["stringData"][name].as_str(), Some(PLACEHOLDER), "{name}");
    }
}

/// The commands of the binary.
fn seqline_commands() -> BTreeSet<String> {
    let cli = <seqline::commands::Cli as clap::CommandFactory>::command();
    cli.get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

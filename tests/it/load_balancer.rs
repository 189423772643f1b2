//! Streams through a real nginx with the configuration that we hand out: nothing waits in a buffer, a gateway may go, and people notice nothing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use seqline::embedded::{TempFolder, free_port};

use crate::harness::fleet::Fleet;
use crate::harness::{Client, PATIENCE, RedisKind, StreamRequest, User, eventually};
use crate::load_verdict::load;

/// A running nginx; it ends with the test.
struct Nginx {
    child: Child,
    url: String,
    _folder: TempFolder,
}

impl Nginx {
    /// Starts it in front of two gateways, with our configuration; `None` where it is not installed.
    async fn start(gateways: [&str; 2]) -> Option<Self> {
        let mut text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/nginx.conf")).unwrap();
        let swaps = [
            ("gateway-1:8080", gateways[0].trim_start_matches("http://").to_owned()),
            ("gateway-2:8080", gateways[1].trim_start_matches("http://").to_owned()),
            ("listen 8080;", "listen 127.0.0.1:PORT;".to_owned()),
            ("/dev/stdout plain", "FOLDER/access.log plain".to_owned()),
            ("worker_processes auto;", "worker_processes 1; daemon off; pid FOLDER/pid;".to_owned()),
            ("worker_rlimit_nofile 65536;", String::new()),
            ("worker_connections 16384;", "worker_connections 512;".to_owned()),
        ];
        for (theirs, ours) in swaps {
            assert!(text.contains(theirs), "deploy/nginx.conf no longer says {theirs:?}");
            text = text.replace(theirs, &ours);
        }
        Self::start_with(&text).await
    }

    /// Starts it with a configuration in which PORT is where it listens and FOLDER what it may write.
    async fn start_with(text: &str) -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"].into_iter().map(PathBuf::from).find(|path| path.exists())?;
        let folder = TempFolder::new("nginx").unwrap();
        let port = free_port().unwrap();
        let text = text.replace("PORT", &port.to_string()).replace("FOLDER", &folder.path().display().to_string());
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.path().display()))
            .join("\n");
        let text = text.replace("http {\n", &format!("http {{\n{temporary}\n"));
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, text).unwrap();
        let child = Command::new(program).arg("-c").arg(&file).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let nginx = Self { child, url: format!("http://127.0.0.1:{port}"), _folder: folder };
        eventually("nginx listens", Duration::from_secs(10), async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok())
            .await;
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("/bin/sh").arg("-c").arg(format!("kill -TERM {}", self.child.id())).status();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_through_nginx_arrives_whole_and_at_once() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let Some(nginx) = Nginx::start([&fleet.url(0), &fleet.url(1)]).await else {
        eprintln!("nginx is not installed; passed over");
        return;
    };
    // A buffer would hold these few small frames for as long as the run lasts.
    let report = load(&[&nginx.url], "evening-peak --members 10 --per-minute 300 --seconds 6 --late-ms 3000").await;
    assert!(report.verdict.good && report.deliveries == 300, "{report}");
    let report = load(&[&nginx.url], "resume --readers 3 --rate 20 --seconds 4 --late-ms 3000").await;
    assert!(report.verdict.good && report.streams.opened > 20, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_nobody_set_up_holds_nothing_back() {
    let fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let upstream = fleet.url(0);
    // As its own manual begins: HTTP/1.0 to the gateway, answers buffered.
    let text = format!(
        "worker_processes 1; daemon off; pid FOLDER/pid; error_log FOLDER/error.log;\nevents {{ }}\nhttp {{\naccess_log off; gzip on; gzip_types *;\n\
         server {{ listen 127.0.0.1:PORT; location / {{ proxy_pass {upstream}; }} }}\n}}\n"
    );
    let Some(nginx) = Nginx::start_with(&text).await else {
        eprintln!("nginx is not installed; passed over");
        return;
    };
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let mut stream = StreamRequest::new(&nginx.url, &bob).open().await;
    stream.wait_for("hello", PATIENCE).await;
    let through = Client::new(&nginx.url, &ann);
    let mut slowest = Duration::ZERO;
    for n in 0..5 {
        through.send_to_peer("bob", &format!("k-{n}"), "hi").await.expect(201);
        let sent = Instant::now();
        stream.next_message(PATIENCE).await;
        slowest = slowest.max(sent.elapsed());
    }
    println!("a message is there {slowest:?} after its answer at the latest");
    assert!(slowest < Duration::from_secs(10), "ten times what is promised: {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_leaves_in_the_middle_of_a_chat_is_not_noticed_behind_nginx() {
    let mut fleet = Fleet::start(RedisKind::Single, 2, 1).await;
    let Some(nginx) = Nginx::start([&fleet.url(0), &fleet.url(1)]).await else {
        eprintln!("nginx is not installed; passed over");
        return;
    };
    let leaving = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        fleet.stop_gateway(0).await;
    };
    let urls = [nginx.url.as_str()];
    let (report, ()) = tokio::join!(load(&urls, "evening-peak --members 10 --per-minute 600 --seconds 8"), leaving);
    assert!(report.verdict.good && report.taken == 80, "{report}");
    assert!(report.streams.dismissed > 0, "the gateway said goodbye to its streams: {report}");
}

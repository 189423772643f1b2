//! Streams through a real nginx with the configuration that we hand out: nothing waits in a buffer, a gateway may go, and people notice nothing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use seqline::embedded::{TempFolder, free_port};

use crate::harness::fleet::Fleet;
use crate::harness::{RedisKind, eventually};
use crate::load_verdict::load;

/// A running nginx; it ends with the test.
struct Nginx {
    child: Child,
    url: String,
    _folder: TempFolder,
}

impl Nginx {
    /// Starts it in front of two gateways; `None` where it is not installed.
    async fn start(gateways: [&str; 2]) -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"].into_iter().map(PathBuf::from).find(|path| path.exists())?;
        let folder = TempFolder::new("nginx").unwrap();
        let port = free_port().unwrap();
        let mut text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/nginx.conf")).unwrap();
        let swaps = [
            ("gateway-1:8080", gateways[0].trim_start_matches("http://").to_owned()),
            ("gateway-2:8080", gateways[1].trim_start_matches("http://").to_owned()),
            ("listen 8080;", format!("listen 127.0.0.1:{port};")),
            ("/dev/stdout plain", format!("{}/access.log plain", folder.path().display())),
            ("worker_processes auto;", format!("worker_processes 1; daemon off; pid {}/pid;", folder.path().display())),
            ("worker_rlimit_nofile 65536;", String::new()),
            ("worker_connections 16384;", "worker_connections 512;".to_owned()),
        ];
        for (theirs, ours) in swaps {
            assert!(text.contains(theirs), "deploy/nginx.conf no longer says {theirs:?}");
            text = text.replace(theirs, &ours);
        }
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.path().display()))
            .join("\n");
        text = text.replace("http {\n", &format!("http {{\n{temporary}\n"));
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

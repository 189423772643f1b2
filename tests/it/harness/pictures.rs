//! Pictures: made, uploaded and looked at; and a fleet that has a folder for them.

use std::io::Cursor;
use std::ops::Deref;
use std::path::Path;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use reqwest::Method;
use reqwest::header::HeaderMap;
use tempfile::TempDir;

use super::{Answer, Client, Fleet, MadeOn, RedisKind, TestDatabase};

/// The kinds that are taken, by the names that HTTP has for them.
pub const KINDS: [(&str, ImageFormat); 4] = [
    ("image/png", ImageFormat::Png),
    ("image/jpeg", ImageFormat::Jpeg),
    ("image/gif", ImageFormat::Gif),
    ("image/webp", ImageFormat::WebP),
];

/// The bytes of a picture of this kind and size.
pub fn picture(kind: &str, width: u32, height: u32) -> Vec<u8> {
    let format = KINDS.iter().find(|(name, _)| *name == kind).unwrap().1;
    let pixels = RgbImage::from_fn(width, height, |x, y| Rgb([(x * 7 % 256) as u8, (y * 11 % 256) as u8, (x * y % 256) as u8]));
    let mut bytes = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(pixels).write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// The URL by which the product is told of a folder.
pub fn folder_url(folder: &Path) -> String {
    url::Url::from_file_path(folder).unwrap().into()
}

/// Files below a folder.
pub fn files(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files(&path) } else { 1 }).sum()
}

/// Two gateways and a worker that share a folder for pictures.
pub struct PictureFleet {
    fleet: Fleet,
    folder: TempDir,
}

impl PictureFleet {
    /// With further flags.
    pub async fn start_with(kind: RedisKind, flags: &[&str]) -> Self {
        Self::with_workers(kind, 1, flags).await
    }

    /// With so many workers; without one nothing is archived.
    pub async fn with_workers(kind: RedisKind, workers: usize, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = folder_url(folder.path());
        let flags: Vec<&str> = ["--media-url", &url].into_iter().chain(flags.iter().copied()).collect();
        Self { fleet: Fleet::start_with(kind, 2, workers, &flags).await, folder }
    }

    /// On a Postgres server of its own, to be stopped.
    pub async fn on_own_postgres() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = folder_url(folder.path());
        let redis = super::PrivateRedis::start(RedisKind::Single).await;
        Self { fleet: Fleet::start_over(redis, TestDatabase::on_own_server().await, 2, 1, &["--media-url", &url]).await, folder }
    }

    /// Where the pictures are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The fleet, to stop parts of it.
    pub fn fleet(&mut self) -> &mut Fleet {
        &mut self.fleet
    }
}

impl Deref for PictureFleet {
    type Target = Fleet;

    fn deref(&self) -> &Fleet {
        &self.fleet
    }
}

impl MadeOn for PictureFleet {
    async fn made_on(kind: RedisKind) -> Self {
        Self::start_with(kind, &[]).await
    }
}

impl Client {
    /// Uploads bytes that are said to be of this kind.
    pub async fn upload(&self, kind: &str, bytes: Vec<u8>) -> Answer {
        self.try_request(Method::POST, "/v1/media", &[("content-type", kind)], Some(bytes)).await.unwrap()
    }

    /// Uploads a small picture and gives its id.
    pub async fn upload_picture(&self) -> String {
        let answer = self.upload("image/png", picture("image/png", 12, 8)).await.expect(201);
        answer.json["id"].as_str().unwrap().to_owned()
    }

    /// Looks at a picture: status, headers, bytes.
    pub async fn look(&self, id: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, Vec<u8>) {
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let mut request = client.get(self.url(&format!("/v1/media/{id}"))).bearer_auth(&self.user().token);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, response.bytes().await.unwrap().to_vec())
    }

    /// The status of looking at a picture.
    pub async fn sees(&self, id: &str) -> u16 {
        self.look(id, &[]).await.0
    }
}

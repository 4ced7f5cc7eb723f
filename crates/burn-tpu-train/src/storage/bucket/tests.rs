//! Buckets: one in memory, and a server on this host that speaks as much of S3 as is needed, and fails when it is told
//! to.

use super::*;
use crate::storage::Retrying;
use crate::{Checkpoint, Checkpointer, Restored};
use object_store::memory::InMemory;

fn in_memory(store: &Arc<InMemory>) -> Bucket {
    Bucket::of(Arc::clone(store) as Arc<dyn ObjectStore>, "memory://bucket/runs/7", "runs/7").unwrap()
}

fn checkpointer(store: &Arc<InMemory>) -> Checkpointer {
    Checkpointer::of(Retrying::new(Box::new(in_memory(store)), RETRIES)).unwrap()
}

/// Returns the paths of all objects.
fn objects(bucket: &Bucket) -> Vec<String> {
    let mut found = Vec::new();
    for entry in bucket.list(&bucket.prefix).unwrap().prefixes {
        let listed = bucket.list(&entry).unwrap();
        found.extend(listed.objects);
        listed.prefixes.iter().for_each(|attempt| found.extend(bucket.list(attempt).unwrap().objects));
    }
    found.iter().map(ToString::to_string).collect()
}

fn draft(entry: &str, attempt: &str) -> Draft {
    Draft { entry: entry.to_owned(), attempt: attempt.to_owned() }
}

#[test]
fn a_checkpoint_is_there_when_its_manifest_is() {
    let store = Arc::new(InMemory::new());
    let mut checkpoints = checkpointer(&store).keep_last(2);
    for step in [1, 2, 3, 3] {
        checkpoints.save(Checkpoint::new(step).value("step", &step)).unwrap();
    }
    checkpoints.wait().unwrap();
    let bucket = in_memory(&store);
    let names = objects(&bucket);
    assert_eq!(names.iter().filter(|name| name.ends_with(MANIFEST)).count(), 2, "{names:?}");
    assert_eq!(names.len(), 4, "what was replaced is gone: {names:?}");
    // One whose process was killed before it was published, beside one that is there, and one more try at that.
    bucket.write(&draft("step-00000004", "lost"), "state.cbor", &[b"half"]).unwrap();
    bucket.write(&draft("step-00000003", "lost"), "state.cbor", &[b"half"]).unwrap();
    assert_eq!(bucket.steps().unwrap(), [2, 3]);
    let checkpoints = checkpointer(&store);
    assert_eq!(objects(&bucket), names, "left-overs are removed");
    let saved = checkpoints.restore().unwrap().unwrap();
    assert_eq!((saved.step(), saved.value::<u64>("step").unwrap()), (3, 3));
    assert_eq!(saved.path(), Path::new("memory://bucket/runs/7/step-00000003"));
    // A checkpoint whose manifest is gone is none, whatever else is left of it.
    bucket.delete(&bucket.manifest_path("step-00000003")).unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [2]);
}

#[test]
fn large_files_are_put_in_parts_and_read_in_ranges() {
    let bucket = in_memory(&Arc::new(InMemory::new()));
    let draft = draft("step-00000001", "a-0");
    let bytes: Vec<u8> = (0..2 * PART_BYTES + 77).map(|byte| (byte / 3) as u8).collect();
    let (header, rest) = bytes.split_at(100);
    bucket.write(&draft, "model.safetensors", &[header, rest]).unwrap();
    assert_eq!(bucket.draft_size(&draft, "model.safetensors").unwrap(), bytes.len() as u64);
    let range = PART_BYTES - 5..PART_BYTES + 9;
    let read = bucket.read(&draft, "model.safetensors", range.start as u64..range.end as u64).unwrap();
    assert_eq!(read, bytes[range]);
    let error = bucket.read(&draft, "other", 0..1).unwrap_err();
    let CheckpointError::File { source, path, .. } = error else { panic!("{error}") };
    assert_eq!(
        (source.kind(), &*path),
        (ErrorKind::NotFound, Path::new("memory://bucket/runs/7/step-00000001/a-0/other"))
    );
}

#[cfg(feature = "s3")]
mod s3 {
    use super::*;
    use object_store::RetryConfig;
    use object_store::aws::AmazonS3Builder;
    use std::collections::BTreeMap;
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::sync::Mutex;

    /// What a server does instead of an answer.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        Status(u16),
        /// Half of the body, and the connection ends.
        Truncates,
        /// An answer that comes after the client has given up.
        Hangs,
    }

    /// Returns the fault of a request, given its method, its path and its number.
    type Faults = fn(&str, &str, usize) -> Option<Fault>;

    #[derive(Default)]
    struct Objects {
        objects: BTreeMap<String, Vec<u8>>,
        parts: BTreeMap<(String, usize), Vec<u8>>,
        requests: usize,
        faults: usize,
    }

    /// A server of one bucket, until the process ends.
    struct Server {
        address: SocketAddr,
        objects: Arc<Mutex<Objects>>,
    }

    impl Server {
        fn start(faults: Faults) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (address, objects) = (listener.local_addr().unwrap(), Arc::<Mutex<Objects>>::default());
            let shared = Arc::clone(&objects);
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let objects = Arc::clone(&shared);
                    std::thread::spawn(move || serve(stream, &objects, faults));
                }
            });
            Self { address, objects }
        }

        /// Returns the place of a run in its bucket, whose client gives a request up after this time.
        fn bucket(&self, tries: usize, limit: Duration) -> Bucket {
            let retry =
                RetryConfig { max_retries: tries, retry_timeout: Duration::from_secs(20), ..RetryConfig::default() };
            let options = object_store::ClientOptions::new().with_timeout(limit).with_allow_http(true);
            let store =
                AmazonS3Builder::new().with_endpoint(format!("http://{}", self.address)).with_bucket_name("bucket");
            let store = store.with_region("local").with_access_key_id("id").with_secret_access_key("key");
            let store = store.with_client_options(options).with_retry(retry).build().unwrap();
            Bucket::of(Arc::new(store), "s3://bucket/runs/7", "runs/7").unwrap()
        }

        fn checkpointer(&self, tries: usize) -> Result<Checkpointer> {
            let retries = Retries { tries: 3, pause: Duration::from_millis(10) };
            Checkpointer::of(Retrying::new(Box::new(self.bucket(tries, Duration::from_millis(400))), retries))
        }

        /// Returns the numbers of requests and of faults.
        fn counts(&self) -> (usize, usize) {
            let objects = self.objects.lock().unwrap();
            (objects.requests, objects.faults)
        }
    }

    struct Request {
        method: String,
        path: String,
        query: BTreeMap<String, String>,
        range: Option<(usize, usize)>,
        body: Vec<u8>,
    }

    fn serve(stream: TcpStream, objects: &Mutex<Objects>, faults: Faults) -> Option<()> {
        let mut input = BufReader::new(stream.try_clone().ok()?);
        loop {
            let request = read(&mut input)?;
            let fault = {
                let mut objects = objects.lock().unwrap();
                objects.requests += 1;
                let fault = faults(&request.method, &request.path, objects.requests);
                objects.faults += usize::from(fault.is_some());
                fault
            };
            let (status, body) = match fault {
                Some(Fault::Status(status)) => (status, b"<Error><Code>InternalError</Code></Error>".to_vec()),
                _ => objects.lock().unwrap().answer(&request),
            };
            if fault == Some(Fault::Hangs) {
                std::thread::sleep(Duration::from_millis(600));
            }
            let mut length = body.len();
            if request.method == "HEAD" {
                length = String::from_utf8_lossy(&body).parse().unwrap_or(0);
            }
            let mut output = &stream;
            let head = format!(
                "HTTP/1.1 {status} OK\r\nContent-Length: {length}\r\nETag: \"1\"\r\nLast-Modified: Sun, 29 Nov 2026 12:00:00 \
                 GMT\r\n{}\r\n",
                request
                    .range
                    .map(|(from, to)| format!("Content-Range: bytes {from}-{to}/{}\r\n", u32::MAX))
                    .unwrap_or_default()
            );
            output.write_all(head.as_bytes()).ok()?;
            if request.method == "HEAD" {
                continue;
            }
            if fault == Some(Fault::Truncates) {
                output.write_all(&body[..body.len() / 2]).ok()?;
                return None;
            }
            output.write_all(&body).ok()?;
        }
    }

    fn read(input: &mut impl BufRead) -> Option<Request> {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.replace("%2F", "/"))
        };
        let query = query.split('&').map(pair).collect();
        let (mut length, mut range) = (0, None);
        loop {
            let mut header = String::new();
            input.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().ok()?;
            }
            if let Some(value) = header.strip_prefix("range: bytes=") {
                range = value.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
            }
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body).ok()?;
        Some(Request {
            method,
            path: path.strip_prefix("/bucket")?.trim_start_matches('/').to_owned(),
            query,
            range,
            body,
        })
    }

    impl Objects {
        /// Returns the status and the body; of a `HEAD`, the number of bytes as text.
        fn answer(&mut self, request: &Request) -> (u16, Vec<u8>) {
            let Request { method, path, query, range, body } = request;
            match (method.as_str(), query.get("uploadId"), self.objects.get(path)) {
                ("GET", ..) if query.contains_key("list-type") => (200, self.list(query)),
                ("GET", _, Some(object)) => match *range {
                    Some((from, to)) => (206, object[from..=to.min(object.len() - 1)].to_vec()),
                    None => (200, object.clone()),
                },
                ("HEAD", _, Some(object)) => (200, object.len().to_string().into_bytes()),
                ("DELETE", ..) => {
                    self.objects.remove(path);
                    (204, Vec::new())
                }
                ("PUT", Some(_), _) => {
                    let part = query["partNumber"].parse().unwrap();
                    self.parts.insert((path.clone(), part), body.clone());
                    (200, Vec::new())
                }
                ("PUT", None, _) => {
                    self.objects.insert(path.clone(), body.clone());
                    (200, Vec::new())
                }
                ("POST", None, _) if query.contains_key("delete") => {
                    let text = String::from_utf8_lossy(body);
                    for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
                        self.objects.remove(key);
                    }
                    (200, b"<DeleteResult></DeleteResult>".to_vec())
                }
                ("POST", None, _) => {
                    let text = "<InitiateMultipartUploadResult><UploadId>7</UploadId></InitiateMultipartUploadResult>";
                    (200, text.as_bytes().to_vec())
                }
                ("POST", Some(_), _) => {
                    let parts = self.parts.iter().filter(|((of, _), _)| of == path);
                    let whole = parts.map(|(_, bytes)| &bytes[..]).collect::<Vec<_>>().concat();
                    self.objects.insert(path.clone(), whole);
                    let text = "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>";
                    (200, text.as_bytes().to_vec())
                }
                _ => (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
            }
        }

        fn list(&self, query: &BTreeMap<String, String>) -> Vec<u8> {
            let prefix = query.get("prefix").map_or("", String::as_str);
            let (mut contents, mut prefixes) = (String::new(), std::collections::BTreeSet::new());
            for (path, object) in self.objects.iter().filter(|(path, _)| path.starts_with(prefix)) {
                match path[prefix.len()..].split_once('/') {
                    Some((folder, _)) => drop(prefixes.insert(format!("{prefix}{folder}/"))),
                    None => {
                        contents += &format!(
                            "<Contents><Key>{path}</Key><Size>{}</Size><LastModified>2026-11-29T12:00:00Z</LastModified>\
                             <ETag>1</ETag></Contents>",
                            object.len()
                        );
                    }
                }
            }
            let prefixes: String = prefixes
                .iter()
                .map(|prefix| format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>"))
                .collect();
            format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{prefixes}</ListBucketResult>")
                .into_bytes()
        }
    }

    /// Saves and restores a checkpoint whose value is large.
    fn survives(server: &Server) {
        let mut checkpoints = server.checkpointer(10).unwrap();
        let value: Vec<u64> = (0..20_000).collect();
        for step in [1, 2] {
            checkpoints.save(Checkpoint::new(step).value("value", &value)).unwrap();
        }
        checkpoints.wait().unwrap();
        drop(checkpoints);
        let checkpoints = server.checkpointer(10).unwrap();
        assert_eq!(checkpoints.steps().unwrap(), [1, 2]);
        let saved: Restored = checkpoints.restore().unwrap().unwrap();
        assert_eq!((saved.step(), saved.value::<Vec<u64>>("value").unwrap() == value), (2, true));
    }

    #[test]
    fn a_server_that_fails_now_and_then_is_asked_again() {
        let all: [Faults; 4] = [
            |_, _, _| None,
            |_, _, number| (number % 3 == 0).then_some(Fault::Status(if number % 2 == 0 { 503 } else { 500 })),
            |method, _, number| (method == "GET" && number % 4 == 0).then_some(Fault::Truncates),
            |_, _, number| (number % 9 == 0).then_some(Fault::Hangs),
        ];
        for (place, faults) in all.into_iter().enumerate() {
            let server = Server::start(faults);
            survives(&server);
            let (requests, faults) = server.counts();
            assert!(faults > 0 || place == 0, "{requests} requests");
        }
    }

    #[test]
    fn a_server_that_fails_always_is_an_error_that_names_the_object_and_nothing_is_listed() {
        let server = Server::start(|method, path, _| {
            (method == "PUT" && path.ends_with("state.cbor")).then_some(Fault::Status(500))
        });
        let mut checkpoints = server.checkpointer(2).unwrap();
        checkpoints.save(Checkpoint::new(1).value("step", &1)).unwrap();
        let said = checkpoints.wait().unwrap_err().to_string();
        assert!(
            said.contains("cannot write `s3://bucket/runs/7/step-00000001/") && said.contains("state.cbor`"),
            "{said}"
        );
        assert!(said.contains("(tried 3 times)"), "{said}");
        assert!(checkpoints.steps().unwrap().is_empty() && checkpoints.restore().unwrap().is_none());
        assert_eq!(server.counts().1, 9, "each of three tries asks three times");
    }

    #[test]
    fn a_large_file_is_put_in_parts() {
        let server = Server::start(|method, _, number| (method == "PUT" && number == 2).then_some(Fault::Status(500)));
        let (bucket, draft) = (server.bucket(10, Duration::from_secs(20)), draft("step-00000001", "a-0"));
        let bytes: Vec<u8> = (0..PART_BYTES + 1000).map(|byte| (byte / 7) as u8).collect();
        bucket.write(&draft, "model.safetensors", &[&bytes]).unwrap();
        let last = bytes.len() as u64 - 500..bytes.len() as u64;
        assert_eq!(bucket.read(&draft, "model.safetensors", last).unwrap(), bytes[bytes.len() - 500..]);
        assert_eq!(server.objects.lock().unwrap().parts.len(), 2);
    }
}

/// With moto: `moto_server -p 5000`, `AWS_ENDPOINT=http://127.0.0.1:5000 AWS_ALLOW_HTTP=true AWS_REGION=us-east-1` and
/// any key.
#[test]
#[ignore = "needs a server of S3 with a bucket: BURN_TPU_TEST_BUCKET=s3://bucket/runs/7, and the variables AWS_…"]
fn a_server_of_another_project_keeps_checkpoints() {
    let url = std::env::var("BURN_TPU_TEST_BUCKET").expect("it names a bucket");
    let value: Vec<u64> = (0..5 << 20).collect();
    let mut checkpoints = Checkpointer::open(&url).unwrap().keep_last(2);
    for step in 1..4 {
        checkpoints.save(Checkpoint::new(step).value("value", &value).value("step", &step)).unwrap();
    }
    checkpoints.wait().unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [2, 3]);
    let saved = checkpoints.restore().unwrap().unwrap();
    assert_eq!((saved.step(), saved.value::<u64>("step").unwrap()), (3, 3));
    assert!(saved.value::<Vec<u64>>("value").unwrap() == value, "it is put in parts");
    assert!(Restored::read(format!("{url}/step-00000002")).unwrap().verify().is_ok());
}

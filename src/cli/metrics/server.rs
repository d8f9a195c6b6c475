//! The server of the metrics: HTTP, and no more of it than a scrape takes.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Format, document};
use crate::agent::SocketAddress;
use crate::cli::snapshot::Snapshot;

/// A client may take so long for its request, and as long again for the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest request.
const MOST_BYTES: usize = 8 << 10;
/// A slow client does not keep the next one waiting.
const THREADS: usize = 2;
/// Rest after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// The place where metrics can be had. They name users and jobs, so it is on this host alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A socket that only root may connect to.
    Path(PathBuf),
    Loopback(SocketAddr),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Path(text.into()));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(_) => {
                Err("the metrics name users and jobs, so they are served on 127.0.0.1 or ::1 \
                          only; have a proxy serve them elsewhere"
                    .into())
            }
            Err(_) => Err("an address such as 127.0.0.1:9337, or the path of a socket".into()),
        }
    }
}

/// A server of metrics, which ends with the process.
pub(crate) struct Server {
    /// The file of its socket.
    file: Option<PathBuf>,
}

impl Server {
    /// Serves the metrics of the agent at `socket`, by threads of its own: a scrape costs the agent no more than
    /// `foldback status` does.
    pub(crate) fn start(place: &Place, socket: &SocketAddress) -> anyhow::Result<Self> {
        let doing = || format!("serving metrics at {}", place.name());
        match place {
            Place::Loopback(address) => {
                let listener = TcpListener::bind(address).with_context(doing)?;
                spawn(socket, move || listener.accept().map(|(stream, _)| stream))
                    .with_context(doing)?;
                Ok(Self { file: None })
            }
            Place::Path(path) => {
                let is_left = fs::symlink_metadata(path)
                    .is_ok_and(|file| file.file_type().is_socket())
                    && UnixStream::connect(path)
                        .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
                if is_left {
                    fs::remove_file(path).with_context(doing)?;
                }
                let listener = UnixListener::bind(path).with_context(doing)?;
                let server = Self { file: Some(path.clone()) };
                fs::set_permissions(path, Permissions::from_mode(0o600)).with_context(doing)?;
                spawn(socket, move || listener.accept().map(|(stream, _)| stream))
                    .with_context(doing)?;
                Ok(server)
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

impl Place {
    fn name(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Loopback(address) => format!("http://{address}/metrics"),
        }
    }
}

/// A stream on which a call may be made to end in time.
trait Stream: Read + Write + Send + 'static {
    fn set_timeout(&self, left: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeout(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Stream for UnixStream {
    fn set_timeout(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

fn spawn<S: Stream>(
    socket: &SocketAddress,
    accept: impl Fn() -> io::Result<S> + Send + Sync + 'static,
) -> io::Result<()> {
    let accept = Arc::new(accept);
    for _ in 0..THREADS {
        let (accept, socket) = (accept.clone(), socket.clone());
        thread::Builder::new().name("foldback-metrics".into()).spawn(move || {
            loop {
                match accept() {
                    Ok(mut stream) => {
                        if let Err(error) = answer(&mut stream, &socket) {
                            log::debug!("metrics: {error}");
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        log::debug!("metrics: {error}");
                        thread::sleep(PAUSE);
                    }
                }
            }
        })?;
    }
    Ok(())
}

/// Answers one request.
fn answer(stream: &mut impl Stream, socket: &SocketAddress) -> io::Result<()> {
    let Some(request) = request(stream)? else { return Ok(()) };
    let metrics = |format| Ok(document(Snapshot::take(socket)?, format)?);
    let (status, kind, body) = match respond(&request, metrics) {
        Ok((format, body)) => ("200 OK", format.media_type(), body),
        Err((status, why)) => (status, "text/plain; charset=utf-8", why + "\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if request.starts_with(b"HEAD ") { "" } else { &body };
    let end = Instant::now() + PATIENCE;
    let mut rest = (head + body).into_bytes();
    while !rest.is_empty() {
        stream.set_timeout(left(end)?)?;
        match stream.write(&rest)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => drop(rest.drain(..written)),
        }
    }
    Ok(())
}

/// The bytes of a request up to the end of its head, or more than a request has; `None`: the client has gone.
fn request(stream: &mut impl Stream) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while request.len() < MOST_BYTES && !has_end(&request) {
        stream.set_timeout(left(end)?)?;
        match stream.read(&mut part)? {
            0 => return Ok(None),
            read => request.extend_from_slice(&part[..read]),
        }
    }
    Ok(Some(request))
}

fn has_end(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
}

/// The time until `end`, which is not 0.
fn left(end: Instant) -> io::Result<Duration> {
    end.checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
        .ok_or_else(|| ErrorKind::TimedOut.into())
}

/// The metrics, or a status of HTTP with the reason.
fn respond(
    request: &[u8],
    metrics: impl FnOnce(Format) -> anyhow::Result<String>,
) -> Result<(Format, String), (&'static str, String)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    if !parsed.parse(request).is_ok_and(|status| status.is_complete()) {
        return Err(("400 Bad Request", "this is no request of HTTP".into()));
    }
    if !matches!(parsed.method, Some("GET" | "HEAD")) {
        return Err(("405 Method Not Allowed", "there is nothing here but to GET".into()));
    }
    if parsed.path.and_then(|path| path.split('?').next()) != Some("/metrics") {
        return Err(("404 Not Found", "the metrics are at /metrics".into()));
    }
    let accepts = |name: &[u8]| {
        parsed.headers.iter().any(|header| {
            header.name.eq_ignore_ascii_case("accept")
                && header.value.windows(name.len()).any(|part| part == name)
        })
    };
    let wants_new = accepts(b"application/openmetrics-text");
    let format = if wants_new { Format::OpenMetrics } else { Format::Text };
    metrics(format)
        .map(|metrics| (format, metrics))
        .map_err(|error| ("503 Service Unavailable", format!("{error:#}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_for_this_host_alone() {
        let of = |text: &str| text.parse::<Place>();
        assert_eq!(
            of("/run/foldback/metrics.sock"),
            Ok(Place::Path("/run/foldback/metrics.sock".into()))
        );
        for loopback in ["127.0.0.1:9337", "[::1]:9337", "127.1.2.3:1"] {
            assert_eq!(of(loopback), Ok(Place::Loopback(loopback.parse().unwrap())));
        }
        for elsewhere in ["0.0.0.0:9337", "192.0.2.1:9337", "[::]:9337"] {
            assert!(of(elsewhere).unwrap_err().contains("proxy"), "{elsewhere}");
        }
        for nonsense in ["", "9337", "localhost:9337", "127.0.0.1"] {
            assert!(of(nonsense).unwrap_err().contains("127.0.0.1:9337"), "{nonsense}");
        }
    }

    #[test]
    fn nothing_but_a_scrape_is_answered() {
        let status = |request: &str| {
            respond(request.as_bytes(), |_| Ok(String::new())).map(|ok| ok.0).map_err(|e| e.0)
        };
        let ok = Ok(Format::Text);
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), ok);
        assert_eq!(status("GET /metrics?debug=1 HTTP/1.0\r\n\r\n"), ok);
        let accept = "Accept: text/plain;q=0.5, application/openmetrics-text; version=1.0.0";
        let new = format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n");
        assert_eq!(status(&new), Ok(Format::OpenMetrics));
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(status("GET /metrics/../x HTTP/1.1\r\n\r\n"), Err("404 Not Found"));
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        assert_eq!(status("GET /metrics HTTP/1.1\r\n"), Err("400 Bad Request"));
        assert_eq!(status(&"x".repeat(MOST_BYTES)), Err("400 Bad Request"));
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(status(&many), Err("400 Bad Request"));
        let failed = respond(b"GET /metrics HTTP/1.1\r\n\r\n", |_| anyhow::bail!("no agent"));
        assert_eq!(failed, Err(("503 Service Unavailable", "no agent".into())));
    }

    #[test]
    fn a_client_that_says_nothing_is_left() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let waiting = thread::spawn(move || request(&mut here).map_err(|error| error.kind()));
        let slow = waiting.join().unwrap();
        assert!(matches!(slow, Err(ErrorKind::TimedOut | ErrorKind::WouldBlock)), "{slow:?}");
        drop(there);
    }
}

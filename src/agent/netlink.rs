//! Route netlink: requests, dumps and attributes, as far as interfaces and traffic control need
//! them. A socket speaks to the network namespace of the thread that opened it.

use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendmsg, socket,
};

/// Longest part of a dump; the kernel fills 32 KiB at most.
const BUFFER_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 16;
/// A dump is repeated when what it lists changed meanwhile.
const DUMP_TRIES: u32 = 5;

/// The rest of an answer, without the message's header.
pub(crate) type Body = Vec<u8>;

pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> nix::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRoute,
        )?;
        Ok(Self { socket, sequence: 0 })
    }

    /// All answers to a dump request.
    pub(crate) fn dump(&mut self, kind: u16, body: &[u8]) -> nix::Result<Vec<Body>> {
        for _ in 0..DUMP_TRIES {
            self.send(kind, libc::NLM_F_DUMP, body)?;
            let (messages, interrupted) = self.receive()?;
            if !interrupted {
                return Ok(messages);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// The one answer to a question.
    pub(crate) fn get(&mut self, kind: u16, body: &[u8]) -> nix::Result<Body> {
        self.send(kind, libc::NLM_F_ACK, body)?;
        self.receive()?.0.pop().ok_or(Errno::ENODATA)
    }

    /// A change, acknowledged.
    pub(crate) fn change(&mut self, kind: u16, flags: i32, body: &[u8]) -> nix::Result<()> {
        self.send(kind, libc::NLM_F_ACK | flags, body)?;
        self.receive().map(drop)
    }

    fn send(&mut self, kind: u16, flags: i32, body: &[u8]) -> nix::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = (HEADER_BYTES + body.len()) as u32;
        let flags = (libc::NLM_F_REQUEST | flags) as u16;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(length.to_ne_bytes());
        header.extend(kind.to_ne_bytes());
        header.extend(flags.to_ne_bytes());
        header.extend(self.sequence.to_ne_bytes());
        header.extend(0_u32.to_ne_bytes());
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        sendmsg::<NetlinkAddr>(self.socket.as_raw_fd(), &parts, &[], MsgFlags::empty(), None)
            .map(drop)
    }

    /// Reads up to the end of the answer; also says whether a dump was interrupted.
    fn receive(&mut self) -> nix::Result<(Vec<Body>, bool)> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut messages = Vec::new();
        let mut interrupted = false;
        loop {
            let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some((header, body, next)) = split_message(rest) {
                rest = next;
                if header.sequence != self.sequence {
                    continue; // of a request given up
                }
                interrupted |= i32::from(header.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(header.kind) {
                    libc::NLMSG_DONE => return Ok((messages, interrupted)),
                    libc::NLMSG_ERROR => {
                        let code = read_i32(body, 0).ok_or(Errno::EBADMSG)?;
                        return match code {
                            0 => Ok((messages, interrupted)),
                            code => Err(Errno::from_raw(-code)),
                        };
                    }
                    _ => messages.push(body.to_vec()),
                }
            }
        }
    }
}

struct Header {
    kind: u16,
    flags: u16,
    sequence: u32,
}

fn split_message(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
    let length = read_u32(bytes, 0)? as usize;
    let header = Header {
        kind: read_u16(bytes, 4)?,
        flags: read_u16(bytes, 6)?,
        sequence: read_u32(bytes, 8)?,
    };
    let body = bytes.get(HEADER_BYTES..length)?;
    Some((header, body, bytes.get(align(length)..).unwrap_or_default()))
}

/// The attributes in a run of them; whatever is cut short ends it.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(read_u16(bytes, 0)?);
        // The top bits say "nested" and "big-endian".
        let kind = read_u16(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of one attribute.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

pub(crate) fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend(((4 + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(align(message.len()), 0);
}

/// Text as the kernel sends it, up to its NUL.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(value.get(..end).unwrap_or_default()).into_owned()
}

fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().copied().map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_written() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 3, b"clsact\0");
        push_attribute(&mut bytes, 0x8004, &7_u32.to_ne_bytes());
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(attribute(&bytes, 3).map(text).as_deref(), Some("clsact"));
        assert_eq!(attribute(&bytes, 4).and_then(|v| read_u32(v, 0)), Some(7));
        assert_eq!(attribute(&bytes, 5), None);
        for end in 0..bytes.len() {
            assert!(attributes(&bytes[..end]).count() <= 2, "a cut list ends, and nothing panics");
        }
    }

    #[test]
    fn a_message_with_a_lying_length_is_none() {
        assert!(split_message(&[255; 32]).is_none());
        assert!(split_message(&[0; 32]).is_none());
        assert!(split_message(&[]).is_none());
    }
}

use super::*;
use crate::agent::spec;
use crate::bindings::FB_MAX_MEMBERS;
use crate::wire::Secret;

fn spec() -> GroupSpec {
    GroupSpec { secret: Some(Secret::new([u64::MAX; 2])), ..spec::of_two() }
}

#[test]
fn requests_survive_the_round_trip() {
    for request in [
        Request::CreateGroup(spec()),
        Request::DestroyGroup { slot: 3 },
        Request::Counters { slot: 0 },
        Request::Interface { address: Ipv4Addr::new(10, 1, 2, 3), window: 1024 },
        Request::Status,
        Request::Groups { from: 17 },
        Request::Users { from: 1000 },
    ] {
        let packet = encode(&request).unwrap();
        assert_eq!(decode::<Request>(&packet).unwrap(), request);
        for end in 0..packet.len() {
            assert!(decode::<Request>(&packet[..end]).is_err(), "a cut packet is no request");
        }
    }
}

#[test]
fn the_largest_messages_fit_their_limits() {
    let members: Vec<_> =
        (0..FB_MAX_MEMBERS as u8).map(|i| Ipv4Addr::new(210, 210, 210, 100 + i)).collect();
    let request = Request::CreateGroup(GroupSpec { members: members.clone(), ..spec() });
    assert!(encode(&request).unwrap().len() <= MAX_REQUEST);

    let words = vec![u64::MAX; crate::agent::pod::COUNTERS];
    let group = GroupStatus {
        slot: u32::MAX,
        uid: u32::MAX,
        pid: i32::MIN,
        job: Some("\"".repeat(MAX_JOB)),
        age_seconds: u64::MAX,
        interface: "i".repeat(15),
        hook: Hook::XdpGeneric,
        self_index: 63,
        members,
        window: 4096,
        chunk_bytes: 1408,
        work: Some(Work { calls: u64::MAX, left: u64::MAX, asked: u64::MAX, rescued: u64::MAX }),
        counters: crate::agent::pod::counters_from_words(&words).unwrap(),
    };
    let counters = group.counters;
    let page = GroupsReply { groups: vec![group; GROUPS_PER_PAGE], next: Some(u32::MAX) };
    assert!(encode(&Reply::Groups(page)).unwrap().len() <= MAX_REPLY);
    let user = UserStatus { uid: u32::MAX, groups: usize::MAX, groups_made: u64::MAX, counters };
    let page = UsersReply { users: vec![user; USERS_PER_PAGE], next: Some(u32::MAX) };
    assert!(encode(&Reply::Users(page)).unwrap().len() <= MAX_REPLY);
}

#[test]
fn unknown_words_are_refused_after_the_greeting_and_ignored_in_it() {
    assert!(decode::<Request>(br#"{"destroy_group":{"slot":1,"force":true}}"#).is_err());
    assert!(decode::<Request>(br#"{"shutdown":{}}"#).is_err());
    assert!(decode::<Request>(br#"{"destroy_group":{"slot":-1}}"#).is_err());
    assert!(decode::<Request>(br#"{"destroy_group":{"slot":1}} "status""#).is_err());
    let later = br#"{"versions":{"protocol":9,"interface":1,"wire":1,"colour":3},"name":"x"}"#;
    let hello: Hello = decode(later).unwrap();
    assert_eq!(hello.versions.check("library").unwrap_err().kind(), ErrorKind::Version);
}

#[test]
fn only_jobs_that_can_be_shown_are_taken() {
    let of = |job: &str| Hello { versions: Versions::CURRENT, job: Some(job.into()) }.sound_job();
    for job in ["4711", "12[3].server", "ƒ2oLkTLb"] {
        assert_eq!(of(job).as_deref(), Some(job));
    }
    for job in ["", "4711\n<0>kernel: panic", "a b", "\u{1b}[2J", &"7".repeat(MAX_JOB + 1)] {
        assert_eq!(of(job), None, "{job}");
    }
    let without: Hello = decode(br#"{"versions":{"protocol":9,"interface":1,"wire":1}}"#).unwrap();
    assert_eq!(without.sound_job(), None);
}

#[test]
fn each_version_counts() {
    let current = Versions::CURRENT;
    assert!(current.check("agent").is_ok());
    for other in [
        Versions { protocol: current.protocol + 1, ..current },
        Versions { interface: current.interface + 1, ..current },
        Versions { wire: current.wire + 1, ..current },
    ] {
        assert_eq!(other.check("agent").unwrap_err().kind(), ErrorKind::Version);
    }
}

//! Attacks that another user of a host would try.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket, sockopt,
};

/// Binds a UDP port, by whatever way the kernel lets us.
pub fn bind_port(port: u16) -> Option<UdpSocket> {
    let mut found = interface_addresses();
    // One of a group's multicast addresses is as good as another.
    found.extend([Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::new(239, 192, 0, 1)]);
    let mut addresses: Vec<IpAddr> = found.into_iter().map(IpAddr::V4).collect();
    addresses.push(Ipv6Addr::UNSPECIFIED.into());
    let shared = [(false, false), (true, false), (false, true), (true, true)];
    let ways = addresses.iter().flat_map(|address| shared.map(|shared| (*address, shared)));
    ways.filter_map(|(address, shared)| bind_shared(SocketAddr::new(address, port), shared)).next()
}

fn interface_addresses() -> Vec<Ipv4Addr> {
    let all = nix::ifaddrs::getifaddrs().expect("addresses of interfaces");
    all.filter_map(|one| Some(one.address?.as_sockaddr_in()?.ip())).collect()
}

fn bind_shared(address: SocketAddr, (by_address, by_port): (bool, bool)) -> Option<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    setsockopt(&socket, sockopt::ReuseAddr, &by_address).ok()?;
    setsockopt(&socket, sockopt::ReusePort, &by_port).ok()?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(address)).ok()?;
    Some(UdpSocket::from(socket))
}

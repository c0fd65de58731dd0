//! Making hosts: a network namespace each, with one device and a route to every neighbour.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use heddle_net::namespace::Namespace;
use heddle_net::netlink::{Device, Netlink, Route};
use heddle_net::tun::Tun;
use rustix::io::Errno;

use super::options::{KernelOptions, NetworkOptions, set_sysctl, sysctl_path};
use crate::error::{Error, Result};

/// The name of every host's device.
pub(super) const DEVICE: &str = "wire0";

/// A host that exists.
#[derive(Debug)]
pub(super) struct Host {
    pub name: String,
    pub addresses: Vec<IpAddr>,
    pub namespace: Namespace,
    /// What TCP uses.
    pub congestion_control: String,
}

/// What one host's kernel is told.
struct Plan<'a> {
    name: &'a str,
    addresses: &'a [IpAddr],
    kernel: &'a KernelOptions,
    congestion_control: &'a str,
    /// The addresses of each neighbour and the longest packet on the way there.
    neighbours: Vec<(&'a [IpAddr], u32)>,
}

/// Makes all hosts of a network, and opens their devices.
pub(super) fn make(options: &NetworkOptions, tun_device: &Path) -> Result<Vec<(Host, Tun)>> {
    let addresses = options.addresses();
    let neighbours = neighbours(options);
    let mut made = Vec::new();
    for (place, host) in options.hosts.iter().enumerate() {
        let of = |(other, mtu): (&usize, &u64)| {
            (addresses[*other].as_slice(), u32::try_from(*mtu).unwrap_or(u32::MAX).min(65_535))
        };
        let default = &options.kernel.congestion_control;
        let plan = Plan {
            name: &host.name,
            addresses: &addresses[place],
            kernel: &options.kernel,
            congestion_control: host.congestion_control.as_ref().unwrap_or(default),
            neighbours: neighbours[place].iter().map(of).collect(),
        };
        made.push(make_host(&plan, tun_device)?);
    }
    Ok(made)
}

/// The neighbours of each host, with the MTU of the direction towards them.
fn neighbours(options: &NetworkOptions) -> Vec<BTreeMap<usize, u64>> {
    let places: BTreeMap<&str, usize> =
        options.hosts.iter().enumerate().map(|(place, host)| (host.name.as_str(), place)).collect();
    let mut neighbours = vec![BTreeMap::new(); options.hosts.len()];
    if let Some(wire) = &options.default_wire {
        for (place, others) in neighbours.iter_mut().enumerate() {
            others.extend((0..places.len()).filter(|other| *other != place).map(|to| (to, wire.mtu_bytes)));
        }
    }
    for wire in &options.wires {
        let (Some(from), Some(to)) = (places.get(wire.from.as_str()), places.get(wire.to.as_str())) else {
            continue;
        };
        neighbours[*from].insert(*to, wire.there.mtu_bytes);
        neighbours[*to].insert(*from, wire.back.as_ref().unwrap_or(&wire.there).mtu_bytes);
    }
    neighbours
}

fn make_host(plan: &Plan<'_>, tun_device: &Path) -> Result<(Host, Tun)> {
    let namespace = Namespace::new().map_err(|error| no_namespace(&error))?;
    let set_up = || -> Result<Tun> {
        set_kernel(plan)?;
        let tun = Tun::open(tun_device, DEVICE).map_err(|error| no_tun(tun_device, &error))?;
        set_device(plan)?;
        Ok(tun)
    };
    let entered = namespace.run(set_up);
    let tun = entered.map_err(Error::io(format!("entering the namespace of {}", plan.name)))??;
    let host = Host {
        name: plan.name.to_owned(),
        addresses: plan.addresses.to_vec(),
        namespace,
        congestion_control: plan.congestion_control.to_owned(),
    };
    Ok((host, tun))
}

/// A host by itself, with nothing but loopback, on which TCP has this congestion control.
pub(super) fn lone(congestion_control: &str) -> Result<Namespace> {
    let namespace = Namespace::new().map_err(|error| no_namespace(&error))?;
    let kernel = KernelOptions::default();
    let plan = Plan {
        name: "the host",
        addresses: &[],
        kernel: &kernel,
        congestion_control,
        neighbours: Vec::new(),
    };
    let set_up = || -> Result<()> {
        set_kernel(&plan)?;
        let mut netlink = Netlink::open().map_err(Error::io("asking for the devices"))?;
        netlink.up(Device::LOOPBACK).map_err(Error::io("bringing up the loopback device"))?;
        set_local_routes(&plan, &mut netlink, Device::LOOPBACK)
    };
    namespace.run(set_up).map_err(Error::io("entering the host's namespace"))??;
    Ok(namespace)
}

/// Pins the settings of the calling thread's namespace.
fn set_kernel(plan: &Plan<'_>) -> Result<()> {
    let set = |name: &str, value: &str| {
        let doing = format!("setting {name} of {} to {value:?}", plan.name);
        set_sysctl(name, value).map_err(Error::io(doing))
    };
    let memory = |[least, first, most]: [u32; 3]| format!("{least} {first} {most}");
    set("net.ipv4.tcp_rmem", &memory(plan.kernel.tcp_rmem))?;
    set("net.ipv4.tcp_wmem", &memory(plan.kernel.tcp_wmem))?;
    if plan.addresses.iter().all(IpAddr::is_ipv4) {
        // Otherwise the kernel asks for routers and neighbours that are not there. A kernel without IPv6 is as good.
        let _ = set_sysctl("net.ipv6.conf.all.disable_ipv6", "1");
        let _ = set_sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    }
    // The kernel refuses this for algorithms that the first namespace does not allow to others; what counts is what the
    // routes say.
    let _ = set_sysctl("net.ipv4.tcp_congestion_control", plan.congestion_control);
    for (name, value) in &plan.kernel.sysctl {
        set(name, value)?;
    }
    Ok(())
}

/// Gives the calling thread's namespace its addresses and routes.
fn set_device(plan: &Plan<'_>) -> Result<()> {
    let doing = |what: &str| Error::io(format!("{what} of {}", plan.name));
    let mut netlink = Netlink::open().map_err(doing("asking for the devices"))?;
    netlink.up(Device::LOOPBACK).map_err(doing("bringing up the loopback device"))?;
    let device = netlink.device(DEVICE).map_err(doing("finding the device"))?;
    let mtu_bytes = plan.neighbours.iter().map(|(_, mtu)| *mtu).max().unwrap_or(1500);
    netlink
        .configure(device, mtu_bytes, plan.kernel.device_packets)
        .map_err(doing(&format!("setting the MTU {mtu_bytes} and the queue")))?;
    for address in plan.addresses {
        netlink.add_address(device, *address).map_err(doing(&format!("adding the address {address}")))?;
    }
    netlink.up(device).map_err(doing("bringing up the device"))?;
    set_local_routes(plan, &mut netlink, device)?;
    for (addresses, mtu_bytes) in &plan.neighbours {
        for to in *addresses {
            // A host that has no address of this family cannot reach it.
            let from = plan.addresses.iter().find(|from| from.is_ipv4() == to.is_ipv4());
            let Some(from) = from else { continue };
            let route = Route {
                to: *to,
                from: *from,
                mtu_bytes: *mtu_bytes,
                congestion_control: Some(plan.congestion_control),
            };
            netlink.add_route(device, &route).map_err(|error| no_route(plan, *to, error))?;
        }
    }
    Ok(())
}

/// Has connections of the host to itself use the congestion control too. Over IPv6 they keep the kernel's default.
fn set_local_routes(plan: &Plan<'_>, netlink: &mut Netlink, device: Device) -> Result<()> {
    let mut own =
        vec![(Device::LOOPBACK, Ipv4Addr::LOCALHOST, 8), (Device::LOOPBACK, Ipv4Addr::LOCALHOST, 32)];
    for address in plan.addresses {
        if let IpAddr::V4(address) = address {
            own.push((device, *address, 32));
        }
    }
    for (device, address, bits) in own {
        netlink
            .set_local_congestion_control(device, address, bits, plan.congestion_control)
            .map_err(|error| no_route(plan, address.into(), error))?;
    }
    Ok(())
}

fn no_namespace(error: &io::Error) -> Error {
    no_descriptor(error).unwrap_or_else(|| {
        Error::Lacking(if Errno::from_io_error(error) == Some(Errno::NOSPC) {
            format!("there are as many network namespaces as the sysctl user.max_net_namespaces allows ({error})")
        } else {
            format!(
                "the system makes no network namespace ({error}); it needs root, or unprivileged user namespaces \
                 (sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns)"
            )
        })
    })
}

/// Has nothing to do with what a user may.
fn no_descriptor(error: &io::Error) -> Option<Error> {
    let limit = match Errno::from_io_error(error)? {
        Errno::MFILE => "the hard limit of open files (ulimit -Hn)",
        Errno::NFILE => "the sysctl fs.file-max",
        _ => return None,
    };
    Some(Error::Lacking(format!(
        "{limit} is too low for so many hosts, which need two descriptors each ({error})"
    )))
}

fn no_tun(device: &Path, error: &io::Error) -> Error {
    if let Some(error) = no_descriptor(error) {
        return error;
    }
    let device = device.display();
    let hint = match error.kind() {
        io::ErrorKind::NotFound => {
            format!(
                "{device} does not exist: load the module (modprobe tun), or give the container that device"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "{device} may not be opened or used by this user: it needs read and write permission, and CAP_NET_ADMIN"
            )
        }
        _ => format!("{device} gives no TUN device"),
    };
    Error::Lacking(format!("{hint} ({error})"))
}

fn no_route(plan: &Plan<'_>, to: IpAddr, error: io::Error) -> Error {
    let wanted = plan.congestion_control;
    let available = fs::read_to_string(sysctl_path("net.ipv4.tcp_available_congestion_control"));
    let available = available.unwrap_or_default().trim().to_owned();
    if error.kind() == io::ErrorKind::InvalidInput && !available.split(' ').any(|known| known == wanted) {
        return Error::Lacking(format!(
            "the kernel has not loaded the congestion control {wanted:?} (modprobe tcp_{wanted}), only: {available}"
        ));
    }
    Error::io(format!("adding the route from {} to {to}", plan.name))(error)
}

/// How many packets the kernel dropped because the emulator did not read them in time.
pub(super) fn device_drops(host: &Host) -> io::Result<u64> {
    let text = host.namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    // The name, eight numbers about receiving, then bytes, packets, errors and drops of sending (proc(5)).
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let numbers = lines.find(|(name, _)| name.trim() == DEVICE).map(|(_, numbers)| numbers);
    let drops = numbers.and_then(|numbers| numbers.split_whitespace().nth(11)?.parse().ok());
    drops.ok_or_else(|| io::Error::other("/proc/net/dev does not have the device"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_no_missing_privilege() {
        let said = |errno: Errno| {
            let error = io::Error::from(errno);
            [no_namespace(&error), no_tun(Path::new("/dev/net/tun"), &error)].map(|error| error.to_string())
        };
        for (errno, limit) in [(Errno::MFILE, "ulimit -Hn"), (Errno::NFILE, "fs.file-max")] {
            assert!(said(errno).iter().all(|said| said.contains(limit) && !said.contains("root")), "{errno}");
        }
        let [no_namespace, _] = said(Errno::NOSPC);
        assert!(no_namespace.contains("user.max_net_namespaces") && !no_namespace.contains("root"));
        assert!(said(Errno::PERM)[0].contains("it needs root"));
    }
}

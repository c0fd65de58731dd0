//! What the kernel holds for sockets, as Linux' `/proc` tells it.

use std::fs;

/// Caches of the kernel's allocator whose objects sockets are made of: the sockets, their files, and who waits for
/// them. Packets are in the buffers' own count.
const CACHES: [&str; 12] = [
    "TCP",
    "TCPv6",
    "UDP",
    "UDPv6",
    "request_sock_TCP",
    "request_sock_TCPv6",
    "tw_sock_TCP",
    "tw_sock_TCPv6",
    "sock_inode_cache",
    "filp",
    "eventpoll_epi",
    "eventpoll_pwq",
];

/// The pages in which Linux counts what TCP's buffers hold, as they are on x86-64.
const PAGE_BYTES: u64 = 4096;

/// Bytes that the whole machine's sockets take in the kernel at least, with what waits in TCP's buffers. A cache that
/// the kernel has merged with another one does not stand in its table and is not counted. `None` for who may not read
/// the table, which is root's, and where TCP's own cache is not in it.
pub fn of_sockets() -> Option<u64> {
    let slabs = fs::read_to_string("/proc/slabinfo").ok()?;
    let sockets = fs::read_to_string("/proc/net/sockstat").ok()?;
    Some(slab_bytes(&slabs)? + PAGE_BYTES * buffer_pages(&sockets)?)
}

/// Reads slabinfo(5): a cache's name, its objects in use, all its objects, and their size.
fn slab_bytes(table: &str) -> Option<u64> {
    let has_tcp = table.lines().any(|line| line.starts_with("TCP "));
    let bytes = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let name = fields.next()?;
        let used: u64 = fields.next()?.parse().ok()?;
        let size: u64 = fields.nth(1)?.parse().ok()?;
        CACHES.contains(&name).then_some(used * size)
    };
    has_tcp.then(|| table.lines().filter_map(bytes).sum())
}

/// The number behind `mem` in the line of TCP.
fn buffer_pages(table: &str) -> Option<u64> {
    let tcp = table.lines().find_map(|line| line.strip_prefix("TCP: "))?;
    let mut fields = tcp.split_ascii_whitespace().skip_while(|field| *field != "mem");
    fields.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_what_waits_in_them_are_counted() {
        let slabs = "slabinfo - version: 2.1\n\
            # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab>\n\
            TCP                   83    130   2368   13    8 : tunables 0 0 0 : slabdata 10 10 0\n\
            sock_inode_cache      10     20    832   19    4 : tunables 0 0 0 : slabdata 1 1 0\n\
            dentry            247803 306978    192   21    1 : tunables 0 0 0 : slabdata 1 1 0\n";
        assert_eq!(slab_bytes(slabs), Some(83 * 2368 + 10 * 832));
        assert_eq!(slab_bytes("slabinfo - version: 2.1\n"), None);
        let sockets = "sockets: used 17\nTCP: inuse 1 orphan 4 tw 0 alloc 5 mem 59\nUDP: inuse 0 mem 7\n";
        assert_eq!(buffer_pages(sockets), Some(59));
        assert_eq!(buffer_pages("sockets: used 17\n"), None);
    }
}

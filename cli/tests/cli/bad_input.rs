//! What is refused: exit code 2, nothing on standard output, and a message with the rule and its numbers.

use crate::mlx5;

#[test]
fn every_misuse_is_refused_by_name() {
    let cases: &[(&str, &[&str])] = &[
        // Devices.
        ("info --device mlx4", &["`mlx4` names no device", "`model`"]),
        ("pingpong --device vfio:0000:01:00", &["`0000:01:00` is not the address", "lspci -D"]),
        ("lat --device=", &["`` names no device"]),
        ("lat --device model:prots=2", &["`prots`", "ports (1 or 2)"]),
        ("lat --device model:ports=3", &["ports=3", "1 or 2"]),
        ("bw --device model:mtu=1500", &["mtu=1500", "256, 512, 1024, 2048 or 4096"]),
        ("bw --device model:mtu", &["`mtu`", "key=value"]),
        ("bw --device model:ports=1,ports=2", &["`ports`", "twice"]),
        ("info --device model:drive=step", &["drive=step", "drive=thread"]),
        // Serving.
        ("model serve", &["--socket"]),
        ("model serve --socket /dev/null", &["/dev/null exists", "another path"]),
        ("model serve --socket /nowhere --function 1", &["no function 1", "ports="]),
        ("model serve --socket /nowhere --device model:drive=step", &["drive=step", "drive=thread"]),
        // Numbers.
        ("lat --iters 0", &["'0'", "--iters"]),
        ("lat --iters many", &["'many'", "--iters"]),
        ("lat --iters 99999999999999999999", &["99999999999999999999"]),
        ("bw --batch 0", &["'0'", "--batch"]),
        ("bw --qps 0", &["'0'", "--qps"]),
        ("bw --qps 70000", &["70000", "65536"]),
        ("bw --depth 40000", &["40000", "32768"]),
        ("bw --signal-every 0", &["'0'", "--signal-every"]),
        ("bw --timeout 0", &["'0'", "--timeout"]),
        ("bw --seed -1", &["-1"]),
        // Sizes.
        ("lat --size x", &["`x` is not a size in bytes"]),
        ("lat --size -1", &["-1"]),
        ("lat --size 64..8", &["64 is above 8"]),
        ("lat --size 5g", &["5g", "4294967295"]),
        ("lat --size 1,,2", &["is not a size in bytes"]),
        ("bw --size 2g", &["2147483648", "max_msg_sz is 1073741824"]),
        ("bw --size 1g --qps 2", &["2147483648 bytes", "1073741824"]),
        ("lat --size 1g --batch 3", &["3221225472 bytes", "1073741824"]),
        ("pingpong --size 1..2", &["is not a size in bytes"]),
        // Operations.
        ("lat --op sned", &["'sned'", "write-imm"]),
        ("lat --op read --inline", &["--inline with --op read"]),
        ("bw --op cas --inline", &["--inline with --op cas"]),
        ("bw --op faa --size 16", &["--size 16", "8 bytes"]),
        ("lat --op write --size 0", &["--size 0", "last byte"]),
        ("lat --op write --size 0..4,0", &["is not a size in bytes"]),
        ("lat --op write --events", &["--events", "write-imm"]),
        ("lat --inline --size 973", &["973", "max_inline_data is 972"]),
        ("bw --inline", &["65536", "max_inline_data is 972"]),
        (
            "lat --op read --transport uc",
            &["--op read with --transport uc", "needs an answer", "--transport rc"],
        ),
        ("bw --op faa --transport uc", &["--op faa with --transport uc"]),
        ("lat --op write --transport ud", &["--op write with --transport ud", "no remote address"]),
        ("lat --transport ud --size 4097", &["4097", "one packet is 4096"]),
        ("bw --transport ud --size 300 --device model:mtu=256", &["300", "one packet is 256"]),
        ("lat --transport dc", &["'dc'", "rc, uc, ud"]),
        // Queues.
        ("bw --batch 129", &["--batch 129", "128", "--depth"]),
        ("bw --batch 9 --depth 8", &["--batch 9", "8 requests"]),
        ("bw --signal-every 129", &["128 silent requests", "queue of 128"]),
        ("bw --signal-every 100 --batch 64", &["99 silent requests", "--depth"]),
        ("pingpong --signal-every 200", &["199 silent requests"]),
        ("lat --op read --signal-every 2", &["--signal-every 2", "--batch 1"]),
        ("bw --qps 65536", &["16777216", "max_cqe is 4194304"]),
        ("bw --depth 32768 --inline --size 900", &["32768"]),
        // Two hosts.
        ("lat --listen :x", &["`x` in `:x` is not a TCP port"]),
        ("lat --listen :1 --connect there", &["--listen", "--connect"]),
        ("lat --ip 192.0.2.1", &["--ip is for two hosts", "--connect HOST"]),
        ("bw --mtu 1024", &["--mtu is for two hosts"]),
        ("bw --connect there --mtu 1500", &["`1500`", "256, 512, 1024, 2048 or 4096"]),
        ("pingpong --exchange perftest", &["--exchange is for two hosts"]),
        ("lat --connect there --peer-mac 02:00", &["`02:00`", "02:00:00:00:00:01"]),
        ("lat --connect there --ip 192.0.2.1 --gid-index 3", &["--ip", "--gid-index"]),
        ("lat --connect there --ip 224.0.0.1", &["224.0.0.1", "one station"]),
        ("lat --listen :0 --exchange ibv_rc_pingpong", &["play ping-pong only", "mlx5 pingpong"]),
        ("pingpong --listen :0 --exchange ibv_ud_pingpong --transport uc", &["--transport uc", "use ud"]),
        ("lat --listen :0 --exchange ibv_ud_pingpong", &["play ping-pong only"]),
        ("lat --listen :0 --exchange perftest --transport ud", &["--transport ud", "use rc"]),
        ("bw --listen :0 --transport ud", &["bw --op send --transport ud between two hosts", "lost"]),
        ("pingpong --listen :0 --exchange perftest", &["mlx5 lat --op send", "ib_send_lat"]),
        ("bw --listen :0 --exchange perftest --op write-imm", &["no WRITE with immediate", "--op send"]),
        ("bw --listen :0 --exchange perftest --size 1,2", &["2 were given", "-s"]),
        ("bw --listen :0 --exchange perftest --qps 2", &["--qps is 2"]),
        ("lat --listen :0 --exchange perftest --batch 2", &["--batch is 2"]),
        ("bw --listen :0 --exchange perftest --op write --size 0", &["--size 0"]),
        ("lat --listen :0 --gid-index 5", &["GID index 5", "empty"]),
        ("lat --listen :0 --gid-index 99", &["GID index 99", "entries"]),
        ("bw --listen :0 --depth 32768", &["4 × for receives", "max_qp_wr"]),
        // Command lines.
        ("", &["Usage: mlx5"]),
        ("latency", &["'latency'"]),
        ("lat more", &["'more'"]),
        ("lat --inlin", &["--inline"]),
        ("lat --explain --json", &["--explain", "--json"]),
        ("info --iters 5", &["--iters"]),
    ];
    for (args, parts) in cases {
        let ended = mlx5(args);
        assert_eq!(ended.code, Some(2), "mlx5 {args}: {ended:?}");
        assert_eq!(ended.stdout, "", "mlx5 {args}");
        for part in *parts {
            assert!(ended.stderr.contains(part), "mlx5 {args}: no `{part}` in: {}", ended.stderr);
        }
    }
}

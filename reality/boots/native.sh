# rdma-core's VFIO provider on the host itself, no guest: a program of ours makes an RC connection by DevX commands.

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
[ -e /usr/include/infiniband/mlx5dv.h ] || missing+=(libibverbs-dev)
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ]; then
    apt-get install -y --no-install-recommends "${missing[@]}" >>"$out/apt.log" 2>&1 && missing=()
fi
if [ ${#missing[@]} -gt 0 ]; then
    say skipped "rdma-core's VFIO provider: missing Debian packages: ${missing[*]}"
else
    beside "rdma-core's VFIO provider, BAR0 sparse: RC by DevX, SEND, WRITE, READ" reality/native/run part=cx6
    beside "rdma-core's VFIO provider, all of BAR0 mapped: RC by DevX, SEND, WRITE, READ" reality/native/run part=cx5,bar=mapped
    beside "rdma-core's VFIO provider, stores trapped: RC by DevX, SEND, WRITE, READ" reality/native/run part=cx6,bar=trapped
fi

# Programs of verbs on the stand-in for the kernel.
missing=()
command -v ibv_rc_pingpong >/dev/null || missing+=(ibverbs-utils)
command -v ib_send_lat >/dev/null || missing+=(perftest)
command -v ss >/dev/null || missing+=(iproute2)
if [ ${#missing[@]} -gt 0 ] && [ "$(id -u)" = 0 ]; then
    apt-get install -y --no-install-recommends "${missing[@]}" >>"$out/apt.log" 2>&1 && missing=()
fi
if [ ${#missing[@]} -gt 0 ]; then
    say skipped "Debian's programs of verbs: missing Debian packages: ${missing[*]}"
else
    beside "Debian's programs of verbs, no kernel RDMA: servers and clients on two cards with a wire" reality/native/verbs $((ports + 4))
fi

# Our own driver over VFIO: cards of two processes, with a wire between them.
beside "our driver over VFIO, two processes: every operation of lat and bw" reality/native/two_hosts "$ports"

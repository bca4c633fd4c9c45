# rdma-core's own tests.

setup "huge pages" sh -c "echo 32 >/proc/sys/vm/nr_hugepages; grep HugePages_Total:.*32 /proc/meminfo"
python3.11 /suite/run.py
n_checks=$((n_checks + $(cat /tmp/n_cases)))
[ "$guest" = tags ] || check "paging on demand, of memory that is taken away each time" python3.11 /suite/paging.py
# Commands that the device refuses are what some cases are about.
setup "no call trace" no_splat

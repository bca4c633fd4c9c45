# Connections by librdmacm, over QP 1.

ip=10.0.0.1

check "rping" both rping -s -a $ip -C 10 -V -- rping -c -a $ip -C 10 -V
check "rping, 32 KiB" both rping -s -a $ip -C 10 -V -S 32768 -- rping -c -a $ip -C 10 -V -S 32768
check "ucmatose" both ucmatose -c 4 -C 20 -S 5000 -- ucmatose -s $ip -c 4 -C 20 -S 5000
check "udaddy" both udaddy -c 4 -C 20 -S 1000 -- udaddy -s $ip -c 4 -C 20 -S 1000
check "rdma_server, rdma_client" both rdma_server -- rdma_client -s $ip
check "rstream, verified" both rstream -T v -S 16384 -I 10 -C 10 -- rstream -s $ip -T v -S 16384 -I 10 -C 10
check "riostream, verified" both riostream -T v -S 16384 -I 10 -C 10 -- riostream -s $ip -T v -S 16384 -I 10 -C 10
for test in ib_send_lat ib_write_bw ib_read_lat; do
    check "$test -R" both $test -F -R -n 100 -- $test -F -R -n 100 $ip
done

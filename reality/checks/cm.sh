# Connections by librdmacm, over QP 1.

check "rping" both rping -s -a 10.0.0.1 -C 10 -V -- rping -c -a 10.0.0.1 -C 10 -V

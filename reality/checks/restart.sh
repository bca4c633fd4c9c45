# The driver lets go of the card and takes it again, in each way that Linux has; $restarts times, says the boot.

rebind() {
    cd /sys/bus/pci/drivers/mlx5_core && set -- 0000:* && echo "$1" >unbind && echo "$1" >bind && back_again
}
# A reset under a live driver is the end of it; Linux resets a function that it gives away.
reset_function() {
    cd /sys/bus/pci/drivers/mlx5_core && set -- 0000:* && echo "$1" >unbind &&
        grep flr "/sys/bus/pci/devices/$1/reset_method" && echo 1 >"/sys/bus/pci/devices/$1/reset" &&
        echo "$1" >bind && back_again
}
reload() { rmmod mlx5_ib && rmmod mlx5_core && modprobe mlx5_core $mlx5_core && modprobe mlx5_ib && back_again; }

# Linux fills its cache of memory keys each time that it takes the card, which takes longest. So with the cache once, and
# without it (`prof_sel` 1) often.
if [ -z "$mlx5_core" ]; then
    check "unbind and bind" rebind
    check "function-level reset" reset_function
    mlx5_core=prof_sel=1
    check "modules out, and in without a cache of memory keys" reload
fi
check "unbind and bind, $restarts times" repeat "$restarts" rebind
check "function-level reset, $restarts times" repeat "$restarts" reset_function
check "modules out and in, 5 times" repeat 5 reload
check "ibv_rc_pingpong after all this" both ibv_rc_pingpong -g 1 -c -- ibv_rc_pingpong -g 1 -c 127.0.0.1
setup "no warning, no call trace" no_warning

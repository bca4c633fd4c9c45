# Our own driver in a guest, on the kernel's mlx5_ib and Debian's libmlx5: the verbs backend.
guest verbs model=part=cx5 checks="kernel direct" images=mlx5
after "hw-tests: the scenarios end as on the model in one process" agree "$dir/verbs/results"

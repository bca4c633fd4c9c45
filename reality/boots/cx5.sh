# ConnectX-5, and most of what a user of verbs does. Every store to a register arrives by itself, as in a virtual machine
# whose pages are not write-combining: Linux finds that out, and libmlx5 does without BlueFlame.
guest cx5 model=part=cx5 checks="kernel verbs perftest cm restart" append="restarts=20" seconds=900
after "no BlueFlame where writes are not combined" grep -aq '^model: 0 WQEs by BlueFlame' "$dir/cx5/console.log"

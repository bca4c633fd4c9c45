# What stock drivers and programs must be able to do in the guest: a line a check on the console, for reality/run to
# read. $checks are the files, with commas between; $filter leaves checks out.

. /checks/lib.sh
for file in $(echo "$checks" | tr , ' '); do
    . "/checks/$file.sh"
done
# A line that was lost among others is noticed by its absence.
echo "check: done $n_checks"

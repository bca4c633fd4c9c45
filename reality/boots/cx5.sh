# ConnectX-5, and most of what a user of verbs does. Linux fills its cache of memory keys each time that it takes the card,
# which is most of the time that a restart takes.
guest cx5 model=part=cx5,bf=off checks="kernel verbs perftest cm restart" append="restarts=2"

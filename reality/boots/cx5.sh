# ConnectX-5, and most of what a user of verbs does.
guest cx5 model=part=cx5,bf=off checks="kernel verbs perftest cm restart"

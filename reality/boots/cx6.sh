# ConnectX-6.
guest cx6 model=part=cx6,bf=off checks="kernel verbs restart"

# ConnectX-5, and all of perftest.
guest cx5 model=part=cx5,bf=off checks="kernel verbs perftest restart" seconds=900

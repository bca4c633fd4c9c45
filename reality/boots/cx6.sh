# ConnectX-6, and connections by librdmacm.
guest cx6 model=part=cx6,bf=off checks="kernel verbs cm restart"

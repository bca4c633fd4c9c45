# One card of two ports: its functions are the ends of a cable, in two network namespaces of one guest.
guest ethernet model=part=cx5,ports=2,bf=off checks="kernel ethernet"

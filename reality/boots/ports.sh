# One card of two ports: two functions in one slot, a cable between them.
guest ports model=part=cx5,ports=2,bf=off checks="kernel ports"

# A card of two InfiniBand ports without a subnet manager of its own: opensm configures them.
guest infiniband model=part=cx5,ports=2,link=ib,sm=off,bf=off checks=infiniband images=opensm

# ConnectX-6, and connections by librdmacm. Without Linux's cache of memory keys (`prof_sel` 1) it can be let go of and taken
# again often.
guest cx6 model=part=cx6,bf=off checks="kernel verbs cm restart" append="restarts=20 mlx5_core=prof_sel=1"

"""Every waiting time of the tests on a whole cluster, in seconds, in one place. Generous: two cores do all of it."""

CLUSTER_UP_S = 1500
"""From nothing: the local cluster is compiled."""
IMAGES_S = 1800
OPERATOR_READY_S = 120
RUNNING_S = 180
"""From apply to the first report: eight Python processes start."""
SHORT_JOB_S = 300
"""A ten-step job, from apply to its end."""
SAMPLE_JOB_S = 900
FAILED_S = 180
STATUS_S = 60
"""A condition that needs no pods."""
GONE_S = 120
"""Pods may take their grace to end."""
SETTLED_S = 15
"""Long enough for a needless write to show."""
QUIET_S = 3
"""Between two looks that show nothing written: the operator writes a change at once."""
POLL_S = 0.5

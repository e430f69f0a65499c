#!/bin/sh
# Runs the test that needs a real Slurm, on one of one node. As root on Debian, after
# apt-get install --no-install-recommends slurmctld slurmd slurm-client munge
set -eu
home=$(mktemp -d)
node=$(hostname -s)
cat > "$home/slurm.conf" <<CONF
ClusterName=one
SlurmctldHost=$node
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=$home
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd.log
ReturnToService=2
NodeName=$node CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$node Default=YES State=UP
CONF
export SLURM_CONF="$home/slurm.conf"
mkdir -p "$home/spool" /run/munge
chown munge: /run/munge
own=
pgrep -x munged > /dev/null || { su -s /bin/sh munge -c munged; own=/run/munge/munged.pid; }
slurmctld -f "$SLURM_CONF"
slurmd -f "$SLURM_CONF"
trap 'kill $(cat "$home/slurmd.pid" "$home/slurmctld.pid" $own); sleep 2; rm -rf "$home"' EXIT
for _ in $(seq 30); do sinfo --noheader --states=idle | grep -q . && break || sleep 1; done
sinfo
"${PYTHON:-python}" -m pytest tests/sweep/test_slurm.py -k real -rs

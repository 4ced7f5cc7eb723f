#!/bin/sh
# v5e:4x4: 16 chips on 4 hosts of 4
set -eu

cat > burn-tpu-startup.sh <<'END_OF_STARTUP'
#!/bin/bash
set -eu
metadata() {
  curl -sf -H 'Metadata-Flavor: Google' \
    "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"
}
index=$(metadata agent-worker-number)
first=$(metadata worker-network-endpoints | cut -d, -f1 | cut -d: -f3)
mkdir -p /opt/burn-tpu/plugin /opt/burn-tpu/program
python3 -m pip download --quiet --no-deps --only-binary=:all: --platform=manylinux_2_31_x86_64 \
  --python-version=3.11 --implementation=cp --abi=cp311 \
  --dest=/opt/burn-tpu libtpu==0.0.51
python3 -m zipfile -e /opt/burn-tpu/libtpu-0.0.51-*.whl /opt/burn-tpu/plugin
gcloud storage cp --recursive 'gs://bucket/train/*' /opt/burn-tpu/program
chmod -R a+x /opt/burn-tpu/program
cd /opt/burn-tpu/program
systemd-run --unit=burn-tpu --working-directory=/opt/burn-tpu/program --property=TimeoutStopSec=30 \
  --setenv=TPU_LIBRARY_PATH=/opt/burn-tpu/plugin/libtpu/libtpu.so \
  --setenv=BURN_TPU_CACHE_DIR=/var/cache/burn-tpu \
  --setenv=BURN_TPU_PROCESS=$index/4 \
  --setenv=BURN_TPU_STORE=$first:8479 \
  -- './train' '--epochs' '10'
END_OF_STARTUP

gcloud compute tpus queued-resources create burn-tpu \
  --node-id=burn-tpu \
  --runtime-version=v2-alpha-tpuv5-lite \
  --zone='us-west4-a' \
  --accelerator-type=v5litepod-16 \
  --metadata-from-file=startup-script=burn-tpu-startup.sh \
  --spot

# What it says, and the end of the bill:
#   gcloud compute tpus queued-resources describe burn-tpu --zone='us-west4-a'
#   gcloud compute tpus tpu-vm ssh burn-tpu --zone='us-west4-a' --worker=all --command='sudo journalctl --unit=burn-tpu'
#   gcloud compute tpus queued-resources delete burn-tpu --zone='us-west4-a' --force

"""What Cloud Hypervisor's API takes, of the calls that a microVM of Hawker could need: a description in our words.

After vmm/src/api/openapi/cloud-hypervisor.yaml of Cloud Hypervisor 53.0 (Apache-2.0). `test_published.py` holds it
against that document wherever it is at hand.
"""

from tests.vmm.document import FLAG, NUMBER, TEXT, Document, Schema, integer, list_of, one_of, record

_PLACE = {"id": TEXT, "pci_segment": NUMBER, "pci_device_id": NUMBER}
_BEHIND_IOMMU = {**_PLACE, "iommu": FLAG}
_MODE = one_of("Off", "Pty", "Tty", "File", "Socket", "Null")
BUCKET = record({"size": integer(0), "refill_time": integer(0)}, one_time_burst=integer(0))
LIMITER = record(bandwidth=BUCKET, ops=BUCKET)
PAYLOAD = record(firmware=TEXT, kernel=TEXT, cmdline=TEXT, initramfs=TEXT, igvm=TEXT, host_data=TEXT)
CPUS = record(
    {"boot_vcpus": integer(1), "max_vcpus": integer(1)},
    kvm_hyperv=FLAG,
    max_phys_bits=NUMBER,
    nested=FLAG,
    core_scheduling=one_of("Vm", "Vcpu", "Off"),
)
MEMORY = record(
    {"size": NUMBER},
    hotplug_size=NUMBER,
    hotplugged_size=NUMBER,
    mergeable=FLAG,
    hotplug_method=TEXT,
    shared=FLAG,
    hugepages=FLAG,
    hugepage_size=NUMBER,
    prefault=FLAG,
    reserve=FLAG,
    thp=FLAG,
)
DISK = record(
    None,
    **_BEHIND_IOMMU,
    path=TEXT,
    readonly=FLAG,
    direct=FLAG,
    num_queues=NUMBER,
    queue_size=NUMBER,
    vhost_user=FLAG,
    vhost_socket=TEXT,
    rate_limiter_config=LIMITER,
    serial=TEXT,
    rate_limit_group=TEXT,
    backing_files=FLAG,
    sparse=FLAG,
    image_type=one_of("FixedVhd", "Qcow2", "Raw", "Vhdx", "Unknown"),
    lock_granularity=one_of("ByteRange", "Full"),
)
NET = record(
    None,
    **_BEHIND_IOMMU,
    tap=TEXT,
    ip=TEXT,
    mask=TEXT,
    mac=TEXT,
    host_mac=TEXT,
    mtu=NUMBER,
    num_queues=NUMBER,
    queue_size=NUMBER,
    vhost_user=FLAG,
    vhost_socket=TEXT,
    vhost_mode=TEXT,
    rate_limiter_config=LIMITER,
    offload_tso=FLAG,
    offload_ufo=FLAG,
    offload_csum=FLAG,
)
DEVICE = record(None, **_BEHIND_IOMMU, path=TEXT, x_nv_gpudirect_clique=NUMBER, x_exclude_mmap_bars=list_of(NUMBER))
CONFIG: Schema = record(
    {"payload": PAYLOAD},
    cpus=CPUS,
    memory=MEMORY,
    disks=list_of(DISK),
    net=list_of(NET),
    rng=record({"src": TEXT}, **_BEHIND_IOMMU),
    balloon=record({"size": NUMBER}, **_BEHIND_IOMMU, deflate_on_oom=FLAG, free_page_reporting=FLAG),
    serial=record({"mode": _MODE}, file=TEXT, socket=TEXT),
    console=record({"mode": _MODE}, **_BEHIND_IOMMU, file=TEXT, socket=TEXT),
    devices=list_of(DEVICE),
    vsock=record({"cid": integer(3), "socket": TEXT}, **_BEHIND_IOMMU),
    iommu=FLAG,
    watchdog=FLAG,
    pvpanic=FLAG,
    landlock_enable=FLAG,
    landlock_rules=list_of(record({"path": TEXT, "access": TEXT})),
)

CLOUD_HYPERVISOR = Document(
    title="Cloud Hypervisor",
    version="53.0",
    operations={
        "GET /api/v1/vmm.ping": None,
        "PUT /api/v1/vmm.shutdown": None,
        "GET /api/v1/vm.info": None,
        "PUT /api/v1/vm.create": CONFIG,
        "PUT /api/v1/vm.delete": None,
        "PUT /api/v1/vm.boot": None,
        "PUT /api/v1/vm.pause": None,
        "PUT /api/v1/vm.resume": None,
        "PUT /api/v1/vm.shutdown": None,
        "PUT /api/v1/vm.resize": record(desired_vcpus=integer(1), desired_ram=NUMBER, desired_balloon=NUMBER),
        "PUT /api/v1/vm.resize-disk": record(id=TEXT, desired_size=NUMBER),
        "PUT /api/v1/vm.snapshot": record(destination_url=TEXT),
        "PUT /api/v1/vm.restore": record(
            {"source_url": TEXT},
            prefault=FLAG,
            memory_restore_mode=one_of("Copy", "OnDemand"),
            resume=FLAG,
        ),
    },
)

"""What Firecracker's API takes, of the calls that a microVM of Hawker could need: a description in our words.

After src/firecracker/swagger/firecracker.yaml of Firecracker 1.16.1 (Apache-2.0). `test_published.py` holds it
against that document wherever it is at hand.
"""

from tests.vmm.document import FLAG, NUMBER, TEXT, Document, integer, list_of, one_of, record

BUCKET = record({"size": integer(0), "refill_time": integer(0)}, one_time_burst=integer(0))
LIMITER = record(bandwidth=BUCKET, ops=BUCKET)
PARTIAL_DRIVE = record({"drive_id": TEXT}, path_on_host=TEXT, rate_limiter=LIMITER)
DRIVE = record(
    {"drive_id": TEXT, "is_root_device": FLAG},
    partuuid=TEXT,
    cache_type=one_of("Unsafe", "Writeback"),
    is_read_only=FLAG,
    path_on_host=TEXT,
    rate_limiter=LIMITER,
    io_engine=one_of("Sync", "Async"),
    socket=TEXT,
)
MACHINE = record(
    {"vcpu_count": integer(1, 32), "mem_size_mib": NUMBER},
    cpu_template=one_of("C3", "T2", "T2S", "T2CL", "T2A", "V1N1", "None"),
    smt=FLAG,
    track_dirty_pages=FLAG,
    huge_pages=one_of("None", "2M"),
)
INTERFACE = record(
    {"iface_id": TEXT, "host_dev_name": TEXT},
    guest_mac=TEXT,
    mtu=integer(68, 65535),
    rx_rate_limiter=LIMITER,
    tx_rate_limiter=LIMITER,
)
BALLOON = record(
    {"amount_mib": NUMBER, "deflate_on_oom": FLAG},
    stats_polling_interval_s=NUMBER,
    free_page_hinting=FLAG,
    free_page_reporting=FLAG,
)
LOAD = record(
    {"snapshot_path": TEXT},
    enable_diff_snapshots=FLAG,
    track_dirty_pages=FLAG,
    mem_file_path=TEXT,
    mem_backend=record({"backend_type": one_of("File", "Uffd"), "backend_path": TEXT}),
    resume_vm=FLAG,
    network_overrides=list_of(record({"iface_id": TEXT, "host_dev_name": TEXT})),
    vsock_override=record({"uds_path": TEXT}),
    clock_realtime=FLAG,
)

FIRECRACKER = Document(
    title="Firecracker",
    version="1.16.1",
    operations={
        "GET /": None,
        "GET /version": None,
        "GET /machine-config": None,
        "GET /vm/config": None,
        "GET /balloon": None,
        "GET /balloon/statistics": None,
        "PUT /actions": record({"action_type": one_of("FlushMetrics", "InstanceStart", "SendCtrlAltDel")}),
        "PUT /boot-source": record({"kernel_image_path": TEXT}, boot_args=TEXT, initrd_path=TEXT),
        "PUT /machine-config": MACHINE,
        "PUT /drives/{drive_id}": DRIVE,
        "PATCH /drives/{drive_id}": PARTIAL_DRIVE,
        "PUT /network-interfaces/{iface_id}": INTERFACE,
        "PUT /vsock": record({"guest_cid": integer(3), "uds_path": TEXT}, vsock_id=TEXT),
        "PUT /balloon": BALLOON,
        "PATCH /balloon": record({"amount_mib": NUMBER}),
        "PUT /entropy": record(rate_limiter=LIMITER),
        "PATCH /vm": record({"state": one_of("Paused", "Resumed")}),
        "PUT /snapshot/create": record(
            {"snapshot_path": TEXT, "mem_file_path": TEXT}, snapshot_type=one_of("Full", "Diff")
        ),
        "PUT /snapshot/load": LOAD,
    },
)

import msgspec

from hawker.config import MachineConfig
from hawker.config.secret_names import in_files, in_processes


def test_each_secret_that_a_config_names_is_found_with_its_place() -> None:
    config = msgspec.convert(
        {
            "files": [{"guest_path": "/a", "raw_value": "aa=="}, {"guest_path": "/b", "secret_name": "CERT"}],
            "processes": [{}, {"secrets": [{"env_var": "MINE", "name": "KEY"}, {"env_var": "PLAIN"}]}],
        },
        MachineConfig,
    )
    assert list(in_files(config)) == [("files[1].secret_name", "CERT")]
    assert list(in_processes(config)) == [("processes[1].secrets[0]", "KEY"), ("processes[1].secrets[1]", "PLAIN")]


def test_a_config_without_them_names_none() -> None:
    assert [*in_files(MachineConfig()), *in_processes(MachineConfig())] == []


def test_secrets_of_containers_are_found_too() -> None:
    container = {"files": [{"guest_path": "/a", "secret_name": "CERT"}], "secrets": [{"env_var": "KEY"}]}
    config = msgspec.convert({"containers": [{}, container]}, MachineConfig)
    assert list(in_files(config)) == [("containers[1].files[0].secret_name", "CERT")]
    assert list(in_processes(config)) == [("containers[1].secrets[0]", "KEY")]

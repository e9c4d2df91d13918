"""How a service is let into a cluster: what is said of a credential that is not there."""

from pathlib import Path

import pytest

from spillway.clusters.api import NODES, ClusterApiSettings, ClusterUnreachable
from spillway.events import ClusterJoined
from spillway.running.cluster_serving import connect_to_cluster
from spillway.running.cluster_turns import ClusterTurnSettings
from spillway.troubles import TroubleCode, code_of_reason


async def test_a_credential_that_is_not_there_is_named_with_its_folder_and_is_ours_to_mend(tmp_path: Path) -> None:
    joined = ClusterJoined("own-9", "nosuch", "", "own", "", "", (), ())
    api = connect_to_cluster(ClusterTurnSettings(credentials_folder=tmp_path), ClusterApiSettings(), joined)
    with pytest.raises(ClusterUnreachable) as caught:
        await api.list(NODES)
    assert str(tmp_path / "nosuch.kubeconfig") in caught.value.detail
    assert code_of_reason(caught.value.reason) == TroubleCode.NOT_ALLOWED
